const SVG = "http://www.w3.org/2000/svg";

class SvgPen {
  constructor(width, height) {
    this.root = document.createElementNS(SVG, "svg");
    this.put(this.root, { xmlns: SVG, width, height, viewBox: "0 0 " + width + " " + height });
    Object.assign(this, { fillStyle: "#000", strokeStyle: "#000", lineWidth: 1, globalAlpha: 1 });
    Object.assign(this, { font: "11px sans-serif", textAlign: "left", textBaseline: "alphabetic" });
    this.dash = [];
    this.path = "";
  }

  put(node, attributes) {
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    return node;
  }

  add(tag, attributes) {
    const node = this.put(document.createElementNS(SVG, tag), attributes);
    if (this.globalAlpha !== 1) node.setAttribute("opacity", this.globalAlpha);
    this.root.append(node);
    return node;
  }

  fillRect(x, y, width, height) {
    if (this.fillStyle instanceof CanvasPattern) this.hatch(x, y, width, height);
    else this.add("rect", { x, y, width, height, fill: this.fillStyle });
  }

  hatch(x, y, width, height) {
    this.add("rect", { x, y, width, height, fill: "#888", "fill-opacity": 0.18 });
  }

  strokeRect(x, y, width, height) {
    this.add("rect", { x, y, width, height, ...this.line() });
  }

  line() {
    const out = { fill: "none", stroke: this.strokeStyle, "stroke-width": this.lineWidth };
    return this.dash.length ? { ...out, "stroke-dasharray": this.dash.join(" ") } : out;
  }

  setLineDash(dash) {
    this.dash = dash;
  }

  beginPath() {
    this.path = "";
  }

  moveTo(x, y) {
    this.path += "M" + x + " " + y;
  }

  lineTo(x, y) {
    this.path += "L" + x + " " + y;
  }

  arc(x, y, r) {
    this.path += "M" + (x - r) + " " + y + "a" + r + " " + r + " 0 1 0 " + 2 * r + " 0a" + r + " " + r + " 0 1 0 " + -2 * r + " 0";
  }

  stroke() {
    this.add("path", { d: this.path, ...this.line() });
  }

  fill() {
    this.add("path", { d: this.path, fill: this.fillStyle });
  }

  fillText(text, x, y) {
    const anchor = { left: "start", right: "end", center: "middle" }[this.textAlign];
    const base = { top: "hanging", middle: "central", bottom: "text-after-edge" }[this.textBaseline];
    const size = /([\d.]+)px/.exec(this.font)[1];
    const weight = this.font.startsWith("bold") ? "bold" : "normal";
    const node = this.add("text", {
      x, y, fill: this.fillStyle, "text-anchor": anchor, "font-size": size,
      "font-weight": weight, "font-family": "sans-serif", "dominant-baseline": base || "auto",
    });
    node.textContent = text;
  }

  drawImage(image, x, y, width, height) {
    const node = this.add("image", { x, y, width, height, preserveAspectRatio: "none" });
    node.setAttribute("href", image.toDataURL("image/png"));
    node.setAttribute("style", "image-rendering: pixelated");
  }

  text() {
    return new XMLSerializer().serializeToString(this.root);
  }
}

function save(name, blob) {
  const link = make("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

function csvCell(value) {
  if (value === null || value === undefined) return "";
  const text = String(value);
  const safe = /^\s*[=+\-@]|^[\t\r\n]/.test(text) && typeof value !== "number" ? "'" + text : text;
  return /[",\n\r]/.test(safe) ? '"' + safe.replaceAll('"', '""') + '"' : safe;
}

function csv(rows) {
  return rows.map((row) => row.map(csvCell).join(",")).join("\n") + "\n";
}
