INSPECT_VIEWS.candidates = {
  title: "Candidates",
  level: "off",
  about: "",
  draw(panel) {
    panel.block("todo", "p").textContent = "";
  },
};
