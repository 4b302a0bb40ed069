INSPECT_VIEWS.compare = {
  title: "Compare",
  level: "off",
  about: "",
  draw(panel) {
    panel.block("todo", "p").textContent = "";
  },
};
