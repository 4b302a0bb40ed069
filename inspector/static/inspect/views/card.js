INSPECT_VIEWS.card = {
  title: "Token",
  level: "layers",
  source: "drift",
  beside: true,
  about: "",
  draw(panel, drift) {
    panel.block("todo", "p").textContent = panel.text(panel.cursor.position, panel.cursor.step);
  },
};
