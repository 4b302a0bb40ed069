const find = (selector) => element.querySelector(selector);
let query = "";
let look = {};

function line(row, seen) {
  const out = document.createElement("p");
  out.className = "ds-plan-row";
  const badge = document.createElement("span");
  badge.className = "ds-badge ds-badge-" + row.lane;
  badge.textContent = row.lane.toUpperCase();
  const title = document.createElement("strong");
  title.textContent = row.title;
  const text = document.createElement("span");
  text.append(...termNodes(row.plan, seen));
  out.append(badge, title, text);
  return out;
}

function small(text) {
  const out = document.createElement("p");
  out.className = "ds-room";
  out.textContent = text;
  return out;
}

function show() {
  let plan;
  try {
    plan = JSON.parse(props.value);
  } catch {
    return;
  }
  const refusal = find("[data-error]");
  refusal.hidden = plan.ok;
  refusal.textContent = plan.ok ? "" : "Cannot run. " + plan.error;
  find("[data-plans]").hidden = !plan.ok;
  if (!plan.ok) return;
  const seen = new Set();
  const rows = plan.lanes.map((row) => line(row, seen));
  const notes = [plan.lanes[0].context, plan.ends, plan.memory].filter(Boolean).map(small);
  find("[data-plans]").replaceChildren(...rows, ...notes);
  find("[data-question]").textContent = plan.question;
  reachable(find("[data-question]"));
  const before = plan.before;
  find("[data-before]").textContent = before
    ? "after " + before + (before === 1 ? " worked example" : " worked examples")
    : "";
  query = plan.query;
  link();
  document.dispatchEvent(new CustomEvent("driftscope-question", { detail: plan.question }));
}

function link() {
  if (!query) return;
  const parts = Object.entries(look).filter(([, value]) => value);
  const where = parts.map(([name, value]) => "&" + name + "=" + encodeURIComponent(value)).join("");
  find("#ds-link-field").value = location.origin + location.pathname + "?" + query + where;
}

document.addEventListener("driftscope-look", (event) => {
  look = event.detail;
  link();
});
find("[data-dice]").addEventListener("click", () => trigger("click"));
find("[data-copy]").addEventListener("click", async () => {
  const field = find("#ds-link-field");
  field.select();
  try {
    await navigator.clipboard.writeText(field.value);
  } catch {
    document.execCommand("copy");
  }
  find("[data-copy]").textContent = "Copied";
  setTimeout(() => (find("[data-copy]").textContent = "Copy"), 1500);
});
watch("value", show);
show();
