const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;
const NAMED = { "\n": "↵", "\t": "⇥", "\r": "␍" };
const CIVIDIS = [
  [0, 34, 78], [18, 53, 112], [59, 73, 108], [87, 93, 109], [112, 113, 115],
  [138, 134, 120], [165, 156, 116], [195, 179, 105], [225, 204, 85], [254, 232, 56],
];

function reachable(box) {
  const over = box.scrollHeight > box.clientHeight + 1 || box.scrollWidth > box.clientWidth + 1;
  if (over) box.tabIndex = 0;
  else box.removeAttribute("tabindex");
}

function make(tag, name, text) {
  const out = document.createElement(tag);
  if (name) out.className = name;
  if (text !== undefined) out.textContent = text;
  return out;
}

function visible(text) {
  return text.replace(
    HIDDEN,
    (c) => NAMED[c] || "⟨U+" + c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0") + "⟩",
  );
}

function bytesOf(piece) {
  return typeof piece === "string" ? new TextEncoder().encode(piece) : Uint8Array.from(piece || []);
}

function quoted(piece) {
  if (piece === undefined) return "?";
  if (typeof piece !== "string") return "bytes " + piece.map((b) => b.toString(16)).join(" ");
  return "“" + visible(piece) + "”";
}

function cellText(piece) {
  if (piece === undefined) return "?";
  if (typeof piece !== "string") return "‹" + piece.map((b) => b.toString(16)).join("") + "›";
  const bare = piece.startsWith(" ") ? piece.slice(1) : piece;
  return bare.trim() || bare.includes("\n") ? visible(bare) : "␣";
}

function joined(pieces) {
  const parts = pieces.map(bytesOf);
  const all = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return new TextDecoder().decode(all);
}

function cividis(value) {
  const place = Math.min(Math.max(value, 0), 1) * (CIVIDIS.length - 1);
  const low = Math.min(Math.floor(place), CIVIDIS.length - 2);
  const part = place - low;
  return CIVIDIS[low].map((c, i) => Math.round(c + (CIVIDIS[low + 1][i] - c) * part));
}

function rgb(parts) {
  return "rgb(" + parts.join(", ") + ")";
}

function inkOn(parts) {
  const linear = parts.map((c) => (c <= 10 ? c / 3294 : ((c / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] > 0.18 ? "#111" : "#fff";
}

function duration(ms) {
  if (!(ms > 0)) return "0 ms";
  if (ms < 1000) return ms.toFixed(ms < 10 ? 1 : 0) + " ms";
  return (ms / 1000).toFixed(2) + " s";
}

function number(value, digits) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const places = digits ?? (Math.abs(value) >= 100 || Number.isInteger(value) ? 0 : 1);
  return value.toLocaleString("en", { maximumFractionDigits: places });
}

function plural(count, noun) {
  return number(count) + " " + noun + (count === 1 ? "" : "s");
}
