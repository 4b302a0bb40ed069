INSPECT_VIEWS.similarity = {
  title: "Similarity",
  level: "off",
  about: "",
  draw(panel) {
    panel.block("todo", "p").textContent = "";
  },
};
