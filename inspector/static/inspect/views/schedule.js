INSPECT_VIEWS.schedule = {
  title: "Schedule",
  level: "off",
  about: "",
  draw(panel) {
    panel.block("todo", "p").textContent = "";
  },
};
