INSPECT_VIEWS.error = {
  title: "Error",
  level: "off",
  about: "",
  draw(panel) {
    panel.block("todo", "p").textContent = "";
  },
};
