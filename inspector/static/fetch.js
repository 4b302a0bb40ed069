const UNITS = [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"]];

function unitOf(bytes) {
  return UNITS.find(([scale]) => bytes >= 0.9995 * scale) || [1, "bytes"];
}

function inUnit(bytes, scale) {
  const value = bytes / scale;
  return value.toFixed(scale === 1 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2);
}

function shareDone(wait) {
  return Math.min(Math.max(wait.done / wait.total, 0), 1);
}

function fetchWords(wait) {
  const [scale, unit] = unitOf(wait.total || wait.done);
  const done = inUnit(wait.done, scale);
  const parts = wait.total
    ? [Math.floor(100 * shareDone(wait)) + " %", done + " of " + inUnit(wait.total, scale) + " " + unit]
    : wait.done ? [done + " " + unit] : [];
  const first = wait.ahead > 1 && wait.ahead + " runs come first";
  return [wait.what && visible(wait.what), ...parts, first].filter(Boolean).join(" · ");
}

function spokenFetch(wait) {
  if (!wait || !wait.total) return "";
  const [scale, unit] = unitOf(wait.total);
  return Math.floor(4 * shareDone(wait)) * 25 + " % of " + inUnit(wait.total, scale) + " " + unit;
}

function drawFetch(box, bar, words, wait) {
  const told = wait ? fetchWords(wait) : "";
  box.hidden = !told;
  if (!told) return;
  if (wait.total) bar.value = shareDone(wait);
  else bar.removeAttribute("value");
  if (words.textContent !== told) words.textContent = told;
}
