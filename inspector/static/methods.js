const root = element.querySelector("[data-methods]");
const slot = (name) => root.querySelector("[data-method-" + name + "]");
const ARXIV = /^arXiv (\d{4}\.\d{4,5})$/;
const KIND = { cache: "Cache: which rows are recomputed", unmasker: "Unmasker: which tokens are committed" };
const BELOW = matchMedia("(max-width: 899px)");
const pages = new Map();

function paperLink(paper) {
  const found = ARXIV.exec(paper);
  if (!found) return [];
  const link = make("a", "", paper);
  link.href = "https://arxiv.org/abs/" + found[1];
  link.rel = "noopener";
  return [link, " · "];
}

function code(name) {
  return make("code", "", name);
}

function withCode(text, seen) {
  return text.split("`").flatMap((part, i) => (i % 2 ? [code(part)] : seen ? termNodes(part, seen) : [part]));
}

function paragraph(text, seen) {
  const out = make("p");
  out.append(...withCode(text, seen));
  return out;
}

function methodKey({ name, title }, className, after) {
  const key = make("button", className, title);
  key.type = "button";
  key.dataset.method = name;
  key.addEventListener("click", () => {
    showMethod(name);
    after();
  });
  return key;
}

function focusTitle() {
  slot("title").focus();
}

function scrollToPage() {
  if (BELOW.matches) slot("page").scrollIntoView();
}

function stackText({ name, stands_on: beneath, carries: above }) {
  const parts = [];
  if (beneath.length) {
    parts.push("Can be used alone or on ", ...keys(beneath), ", written ", code(beneath[0].name + "+" + name), ". ");
  }
  if (above.length) {
    parts.push("Can be combined with ", ...keys(above), ", written ", code(name + "+" + above[0].name), ".");
  }
  return parts;
}

function keys(methods) {
  return methods.flatMap((method, i) => [...(i ? [", "] : []), methodKey(method, "ds-method-jump", focusTitle)]);
}

function cell(tag, text, role, className = "") {
  const out = make(tag, className, text);
  out.setAttribute("role", role);
  return out;
}

function lineOf(role, ...cells) {
  const out = make("tr");
  out.setAttribute("role", role);
  out.append(...cells);
  return out;
}

function knobRow({ key, label, default: value, range, help, background }) {
  const head = cell("th", label, "rowheader");
  head.scope = "row";
  head.append(code(key));
  const meaning = cell("td", help, "cell");
  if (background) meaning.append(paragraph(background));
  const row = lineOf("row", head, cell("td", value, "cell"), cell("td", range, "cell"), meaning);
  row.dataset.knob = key;
  return row;
}

function knobTable(knobs) {
  const table = make("table", "ds-method-knobs");
  table.setAttribute("role", "table");
  table.setAttribute("aria-labelledby", "ds-methods-knobs-title");
  const names = ["Knob", "Default", "Range", "What it does"].map((name) => cell("th", name, "columnheader"));
  const [head, body] = [make("thead"), make("tbody")];
  for (const part of [head, body]) part.setAttribute("role", "rowgroup");
  head.append(lineOf("row", ...names));
  body.append(...knobs.map(knobRow));
  table.append(head, body);
  return table;
}

function measuredTable({ head, rows }) {
  const table = make("table", "ds-method-measured");
  const names = make("tr");
  for (const name of head) names.append(make("th", "", name));
  for (const name of names.children) name.scope = "col";
  const body = make("tbody");
  for (const [name, ...values] of rows) {
    const line = make("tr");
    const first = make("th", "", name);
    first.scope = "row";
    line.append(first, ...values.map((value) => make("td", "", value)));
    body.append(line);
  }
  const top = make("thead");
  top.append(names);
  table.append(top, body);
  return table;
}

function publishedRow(one) {
  const figure = cell("th", "", "rowheader");
  figure.scope = "row";
  figure.append(make("strong", "", one.figure));
  const held = cell("td", "", "cell");
  held.append(...withCode(one.conditions));
  const source = one.table === "none" ? one.source : one.source + ", " + one.table;
  const rest = { GPU: one.gpu, Lengths: one.lengths, Shots: one.shots, Source: source };
  const cells = Object.entries(rest).map(([label, text]) => {
    const out = cell("td", text, "cell");
    out.dataset.label = label;
    return out;
  });
  return lineOf("row", figure, held, ...cells);
}

function publishedTable(rows) {
  const table = make("table", "ds-method-published");
  table.setAttribute("role", "table");
  table.setAttribute("aria-labelledby", "ds-methods-published-title");
  const names = ["Figure", "Conditions", "GPU", "Lengths", "Shots", "Source"];
  const [head, body] = [make("thead"), make("tbody")];
  for (const part of [head, body]) part.setAttribute("role", "rowgroup");
  head.append(lineOf("row", ...names.map((name) => cell("th", name, "columnheader"))));
  body.append(...rows.map(publishedRow));
  table.append(head, body);
  return table;
}

function showMethod(name) {
  const page = pages.get(name);
  slot("kind").textContent = KIND[page.kind];
  for (const part of ["title", "summary"]) slot(part).textContent = page[part];
  slot("paper").replaceChildren(...paperLink(page.paper), code(name));
  slot("try").href = "?" + page.query;
  const seen = new Set();
  slot("description").replaceChildren(...page.description.map((text) => paragraph(text, seen)));
  slot("stack").replaceChildren(...stackText(page));
  slot("stack").hidden = !slot("stack").childNodes.length;
  slot("knobs").replaceChildren(...(page.knobs.length ? [knobTable(page.knobs)] : []));
  slot("knobless").hidden = page.knobs.length > 0;
  slot("published").replaceChildren(...(page.published.length ? [publishedTable(page.published)] : []));
  slot("published").hidden = !page.published.length;
  slot("unpublished").hidden = page.published.length > 0;
  slot("measured-part").hidden = !page.measured;
  slot("measured").replaceChildren(...(page.measured ? [measuredTable(page.measured)] : []));
  slot("page").hidden = false;
  root.dataset.method = name;
  for (const key of slot("list").querySelectorAll("button")) {
    key.setAttribute("aria-current", key.dataset.method === name ? "page" : "false");
  }
}

function listed({ title, methods }) {
  const rows = make("ul");
  for (const method of methods) {
    pages.set(method.name, method);
    const [row, key] = [make("li"), methodKey(method, "", scrollToPage)];
    key.id = "ds-method-" + method.name;
    row.append(key);
    rows.append(row);
  }
  return [make("h2", "", title), rows];
}

async function openMethods() {
  const { groups, note } = JSON.parse(await server.methods(""));
  slot("list").replaceChildren(...groups.flatMap(listed));
  slot("note").textContent = note;
  showMethod(pages.keys().next().value);
}

openMethods();
