function legendItems(spec) {
  const items = [];
  const key = (text, paint) => {
    const item = make("li");
    const swatch = make("span", "ds-swatch");
    paint(swatch);
    item.append(swatch, document.createTextNode(text));
    items.push(item);
  };
  for (const line of spec.series || []) {
    if (line.name) key(line.name, (node) => lineSwatch(node, line));
  }
  const legend = spec.legend;
  if (legend?.kind === "scale") items.push(scaleItem(legend));
  for (const [colour, text, glyph, edge] of legend?.items || []) {
    key(text, (node) => {
      node.style.background = rgb(colour);
      node.style.color = inkOn(colour);
      node.textContent = glyph || "";
      if (edge) node.classList.add("ds-" + edge);
    });
  }
  if (!spec.series) key(spec.blank || "no data", (node) => node.classList.add("ds-hatch"));
  if (spec.underName) key(spec.underName, (node) => node.classList.add("ds-dark", "ds-under"));
  if (spec.dots) key(spec.dotName || "unmasked here", (node) => node.classList.add("ds-dot"));
  return items;
}

function lineSwatch(node, line) {
  if (line.mark) {
    node.classList.add("ds-mark");
    node.style.color = line.colour;
    return void (node.textContent = line.mark === "cross" ? "✕" : "●");
  }
  node.classList.add("ds-line");
  node.style.borderTopColor = line.colour;
  node.style.borderTopStyle = line.dash?.length ? "dashed" : "solid";
  if (line.kind === "points" || line.kind === "bars") node.style.background = line.colour;
}

function scaleItem(legend) {
  const item = make("li", "ds-legend-scale");
  const bar = make("span", "ds-ramp");
  const stops = Array.from({ length: 11 }, (_, i) => rgb(legend.colour(i / 10)));
  bar.style.background = "linear-gradient(90deg, " + stops.join(", ") + ")";
  const ticks = make("span", "ds-ramp-ticks");
  for (const [place, text] of legend.ticks) {
    const tick = make("i", "", text);
    tick.style.left = place * 100 + "%";
    ticks.append(tick);
  }
  for (const place of legend.marks || []) {
    const mark = make("span", "ds-ramp-mark");
    mark.style.left = place * 100 + "%";
    bar.append(mark);
  }
  const frame = make("span", "ds-ramp-frame");
  frame.append(bar, ticks);
  item.append(document.createTextNode(legend.name), frame);
  return item;
}
