import glossary from "../../../static/glossary.json";
import { make } from "../base/dom.ts";

/** A term of the glossary; `forms` are the words that link to it. */
interface Term {
  title: string;
  text: string;
  forms: string[];
}

const GLOSSARY: Readonly<Record<string, Term>> = glossary;

/** The name of the term of each form, in lower case. */
const TERM_OF: ReadonlyMap<string, string> = new Map(
  Object.entries(GLOSSARY).flatMap(([name, { forms }]) =>
    forms.map((form) => [form.toLowerCase(), name] as const),
  ),
);

const FORMS = [...TERM_OF.keys()].sort((a, b) => b.length - a.length).join("|");
const TERMS = new RegExp("(?<![\\w-])(?:" + FORMS + ")(?![\\w-])", "gi");

/** A text in parts: plain texts, and words that link to a term. */
export type TextPart = string | { term: string; text: string };

/**
 * A text with the first occurrence of each glossary term marked. `seen` has the names of the terms
 * that are linked already; those found are added to it.
 */
export function termParts(text: string, seen = new Set<string>()): TextPart[] {
  const parts: TextPart[] = [];
  let done = 0;
  for (const found of text.matchAll(TERMS)) {
    const term = TERM_OF.get(found[0].toLowerCase());
    if (term === undefined || seen.has(term)) continue;
    seen.add(term);
    parts.push(text.slice(done, found.index), { term, text: found[0] });
    done = found.index + found[0].length;
  }
  return [...parts, text.slice(done)];
}

/** The same as nodes, with a button for each term. */
export function termNodes(text: string, seen = new Set<string>()): (Node | string)[] {
  return termParts(text, seen).map((part) =>
    typeof part === "string" ? part : termButton(part.term, part.text),
  );
}

function termButton(name: string, text: string): HTMLButtonElement {
  const out = make("button", "ds-term", text);
  out.type = "button";
  out.dataset.term = name;
  out.setAttribute("aria-haspopup", "dialog");
  return out;
}

function glossaryEntry([name, { title, text }]: [string, Term]): HTMLElement {
  const entry = make("div", "ds-entry");
  entry.dataset.entry = name;
  entry.tabIndex = -1;
  entry.append(make("dt", "", title), make("dd", "", text));
  return entry;
}

function makeGlossary(): HTMLDialogElement {
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
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close();
  });
  (document.querySelector(".gradio-container") ?? document.body).append(dialog);
  return dialog;
}

/**
 * Open the glossary at a term; an empty name opens it at its start. The focus returns to `opener`
 * when it closes.
 */
function openGlossary(name: string, opener: HTMLElement): void {
  const dialog = document.querySelector<HTMLDialogElement>("#ds-glossary") ?? makeGlossary();
  if (dialog.open) return;
  const giveBack = (): void => {
    if (opener.isConnected) opener.focus();
  };
  dialog.addEventListener("close", giveBack, { once: true });
  dialog.showModal();
  dialog.scrollTop = 0;
  for (const entry of dialog.querySelectorAll<HTMLElement>("[data-entry]")) {
    const chosen = entry.dataset.entry === name;
    entry.classList.toggle("ds-chosen", chosen);
    if (chosen) entry.focus();
  }
}

/** Let all buttons of the page with a term open the glossary. Only the first call does something. */
export function installGlossary(): void {
  const { dataset } = document.documentElement;
  if (dataset.glossary) return;
  dataset.glossary = "ready";
  document.addEventListener("click", ({ target }) => {
    const opener = target instanceof Element ? target.closest<HTMLElement>("[data-term]") : null;
    if (opener) openGlossary(opener.dataset.term ?? "", opener);
  });
}
