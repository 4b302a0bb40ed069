// Gradio's dropdown opens its list on Tab and on Shift and leaves it open, and drops the focus on Enter.
function tendDropdowns() {
  const field = ({ target }) => target.closest('.gradio-container [role="combobox"]');
  document.addEventListener("keydown", (event) => field(event) && ["Tab", "Shift"].includes(event.key) && passList(event), true);
  document.addEventListener("keydown", (event) => field(event) && event.key === "Enter" && setTimeout(() => comeBack(event.target)));
}

function passList(event) {
  event.stopPropagation();
  for (const list of document.querySelectorAll('.gradio-container [role="listbox"]')) list.tabIndex = -1;
}

function comeBack(field) {
  if (document.activeElement !== document.body) return;
  field.focus();
  field.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape", bubbles: true }));
}
