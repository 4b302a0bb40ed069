INSPECT_VIEWS.queries = {
  title: "Queries",
  level: "off",
  about: "",
  draw(panel) {
    panel.block("todo", "p").textContent = "";
  },
};
