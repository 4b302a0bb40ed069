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

function about(seconds) {
  if (seconds < 90) return Math.max(1, Math.round(seconds)) + " s";
  return Math.round(seconds / 60) + " min";
}

function queueWords(wait) {
  if (wait.ahead === undefined) return "";
  const time = wait.seconds === null ? "" : "at most about " + about(wait.seconds);
  if (!wait.ahead) return time && "for " + time;
  const runs = wait.ahead + (wait.ahead === 1 ? " run" : " runs") + " ahead of yours";
  return runs + " · " + (time || "no estimate yet");
}

function fetchWords(wait) {
  const [scale, unit] = unitOf(wait.total || wait.done);
  const done = inUnit(wait.done, scale);
  const parts = wait.total
    ? [Math.floor(100 * shareDone(wait)) + " %", done + " of " + inUnit(wait.total, scale) + " " + unit]
    : wait.done ? [done + " " + unit] : [];
  return [wait.what && visible(wait.what), ...parts].filter(Boolean).join(" · ");
}

function spokenFetch(wait) {
  if (wait && wait.ahead !== undefined) return queueWords(wait);
  if (!wait || !wait.total) return "";
  const [scale, unit] = unitOf(wait.total);
  return Math.floor(4 * shareDone(wait)) * 25 + " % of " + inUnit(wait.total, scale) + " " + unit;
}

function drawFetch(box, bar, words, wait) {
  const bytes = wait && wait.ahead === undefined;
  const told = wait ? (bytes ? fetchWords(wait) : queueWords(wait)) : "";
  box.hidden = !told;
  bar.hidden = !bytes;
  if (!told) return;
  if (wait.total) bar.value = shareDone(wait);
  else bar.removeAttribute("value");
  if (words.textContent !== told) words.textContent = told;
}
