const NOT_ASKED = [186, 194, 204];

INSPECT_VIEWS.guider = {
  title: "AR guider",
  level: "off",
  about:
    "Where a small autoregressive model judges the tokens that the diffusion model proposes: accepted up to the first mismatch, step by answer token (FlashDLM). " +
    "A cell in which no guider was asked is grey with a dot.",
  draw(panel) {
    const { frame, cursor, inspector, spot } = panel;
    panel.block("said", "p", "ds-wide").textContent =
      "No guider was asked in this run: the diffusion model committed every token by its own rule. So there is no accepted prefix, no mismatch and no accepted length to show.";
    const place = cursor.position === null ? -1 : cursor.position - frame.prompt;
    const figure = panel.figure("guider");
    figure.root.classList.add("ds-wide");
    figure.show({
      title: "The guider's verdict: step by answer token",
      key: "guider" + cursor.lane + inspector.key,
      x: panel.answers(),
      y: { name: "step", count: frame.steps },
      value: () => 0,
      colour: () => NOT_ASKED,
      glyph: () => "·",
      legend: { items: [[[0, 158, 115], "accepted", "✓"], [[213, 94, 0], "mismatch", "✗"], [NOT_ASKED, "not asked", "·"]] },
      unit: "verdict",
      plain: () => "not asked",
      words: (x, y) => "Answer token " + (x + 1) + ", " + panel.text(frame.prompt + x, y) + ", step " + (y + 1) + ": no guider was asked",
      pick: (x, y, pin) => panel.pick({ position: frame.prompt + x, step: y }, pin),
      leave: () => panel.pick(null, false),
      at: { x: place < 0 ? null : place, y: spot.step },
      height: Math.min(Math.max(frame.steps * 12 + 44, 240), 680),
    });
  },
};
