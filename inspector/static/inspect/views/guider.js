INSPECT_VIEWS.guider = {
  title: "Guider",
  level: "off",
  about: "",
  draw(panel) {
    panel.block("todo", "p").textContent = "";
  },
};
