INSPECT_VIEWS.time = {
  title: "Time",
  level: "off",
  about: "",
  draw(panel) {
    panel.block("todo", "p").textContent = "";
  },
};
