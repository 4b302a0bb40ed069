INSPECT_VIEWS.scatter = {
  title: "Scatter",
  level: "off",
  about: "",
  draw(panel) {
    panel.block("todo", "p").textContent = "";
  },
};
