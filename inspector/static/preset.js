const names = element.querySelector("[data-preset-names]");
const info = element.querySelector("[data-preset-info]");

function choice(value, text) {
  const out = document.createElement("option");
  out.value = value;
  out.textContent = text;
  return out;
}

function show() {
  let found;
  try {
    found = JSON.parse(props.value);
  } catch {
    return;
  }
  info.textContent = found.info;
  names.replaceChildren(choice("", "–"), ...found.choices.map(([name, label]) => choice(name, label)));
  names.disabled = !found.choices.length;
  names.value = found.chosen;
}

names.addEventListener("change", () => trigger("take", { preset: names.value }));
watch("value", show);
show();
