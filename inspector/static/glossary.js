// GLOSSARY is the content of glossary.json. static_files.script puts it in front of this file.
const TERM_OF = new Map(
  Object.entries(GLOSSARY).flatMap(([name, { forms }]) => forms.map((form) => [form.toLowerCase(), name])),
);
const FORMS = [...TERM_OF.keys()].sort((a, b) => b.length - a.length).join("|");
const TERMS = new RegExp("(?<![\\w-])(?:" + FORMS + ")(?![\\w-])", "gi");

// Text as nodes, with a button for the first occurrence of each glossary term. `seen` has the
// names of the terms that are linked already.
function termNodes(text, seen = new Set()) {
  const nodes = [];
  let done = 0;
  for (const found of text.matchAll(TERMS)) {
    const name = TERM_OF.get(found[0].toLowerCase());
    if (seen.has(name)) continue;
    seen.add(name);
    nodes.push(text.slice(done, found.index), termButton(name, found[0]));
    done = found.index + found[0].length;
  }
  return [...nodes, text.slice(done)];
}

function termButton(name, text) {
  const out = make("button", "ds-term", text);
  out.type = "button";
  out.dataset.term = name;
  out.setAttribute("aria-haspopup", "dialog");
  return out;
}

function glossaryEntry([name, { title, text }]) {
  const entry = make("div", "ds-entry");
  entry.dataset.entry = name;
  entry.tabIndex = -1;
  entry.append(make("dt", "", title), make("dd", "", text));
  return entry;
}

function makeGlossary() {
  const dialog = make("dialog", "ds-glossary");
  dialog.id = "ds-glossary";
  dialog.setAttribute("aria-labelledby", "ds-glossary-title");
  const head = make("header");
  const title = make("h2", "", "Glossary");
  title.id = "ds-glossary-title";
  const close = make("button", "ds-play", "Close");
  close.type = "button";
  close.addEventListener("click", () => dialog.close());
  head.append(title, close);
  const list = make("dl");
  list.append(...Object.entries(GLOSSARY).map(glossaryEntry));
  dialog.append(head, list);
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  (document.querySelector(".gradio-container") || document.body).append(dialog);
  return dialog;
}

// Open the glossary at an entry; an empty name opens it at its start. The focus returns to
// `opener` when it closes.
function openGlossary(name, opener) {
  const dialog = document.querySelector("#ds-glossary") || makeGlossary();
  if (dialog.open) return;
  dialog.addEventListener("close", () => opener.isConnected && opener.focus(), { once: true });
  dialog.showModal();
  dialog.scrollTop = 0;
  for (const entry of dialog.querySelectorAll("[data-entry]")) {
    const chosen = entry.dataset.entry === name;
    entry.classList.toggle("ds-chosen", chosen);
    if (chosen) entry.focus();
  }
}

// Several components of the page include this file; only the first one adds the listener.
if (!document.documentElement.dataset.glossary) {
  document.documentElement.dataset.glossary = "ready";
  document.addEventListener("click", (event) => {
    const opener = event.target.closest?.("[data-term]");
    if (opener) openGlossary(opener.dataset.term, opener);
  });
}
