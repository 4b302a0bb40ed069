INSPECT_VIEWS.drift = {
  title: "Drift",
  level: "layers",
  source: "drift",
  about:
    "The drift of each row when it was recomputed: 1 − cosine between the new and the previous value, on a log scale. " +
    "Reused rows have no new value and are hatched. An orange dot marks the step at which a token was unmasked; after it, K and V should hardly change.",
  controls: [
    {
      name: "quantity",
      label: "Quantity",
      value: "v",
      options: [["k", "K"], ["v", "V"], ["attn", "attention output"], ["ffn", "feed-forward output"], ["q0", "query of the first head"]],
    },
  ],
  draw(panel, data) {
    const quantity = data.quantities.indexOf(panel.values.quantity);
    const { frame, cursor } = panel;
    const layer = Math.min(cursor.layer, frame.layers - 1);
    const step = Math.min(cursor.step, frame.steps - 1);
    const code = (s, l, x) => {
      const found = at(data.drift, s, l, quantity, x);
      return found === NO_DATA ? null : found;
    };
    const shared = {
      x: panel.positions(),
      colour: driftColour,
      legend: DRIFT_SCALE,
      unit: "1 - cosine",
      plain: (c) => DRIFT[c],
      leave: () => panel.pick(null, false),
      height: 320,
    };
    const words = (x, y, s, l) =>
      "Position " + (x + 1) + ", " + panel.text(x, s) + ", step " + (s + 1) + ", layer " + (l + 1) + ": " + driftText(at(data.drift, s, l, quantity, x));
    const dots = [];
    frame.revealed.values.forEach((s, x) => s >= 0 && dots.push([x, s]));
    panel.figure("drift-steps").show({
      ...shared,
      title: "Layer " + (layer + 1) + ": step by position",
      key: "s" + quantity + "," + layer + "," + cursor.lane + panel.inspector.key,
      y: { name: "step", count: frame.steps },
      value: (x, y) => code(y, layer, x),
      words: (x, y) => words(x, y, y, layer),
      pick: (x, y, pin) => panel.pick({ position: x, step: y }, pin),
      at: { x: cursor.position, y: step },
      dots,
    });
    panel.figure("drift-layers").show({
      ...shared,
      title: "Step " + (step + 1) + ": layer by position",
      key: "l" + quantity + "," + step + "," + cursor.lane + panel.inspector.key,
      y: { name: "layer", count: frame.layers },
      value: (x, y) => code(step, y, x),
      words: (x, y) => words(x, y, step, y),
      pick: (x, y, pin) => panel.pick({ position: x, layer: y }, pin),
      at: { x: cursor.position, y: layer },
    });
  },
};
