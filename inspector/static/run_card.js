async function cardText(inspector) {
  const { store } = inspector;
  const { run } = store;
  const lanes = {};
  for (const lane of store.started) lanes[lane.name] = await inspector.fetch(lane.name, "run_card");
  if (run !== store.run || store.live) return "";
  const name = run.slice(0, 8);
  const branch = Object.values(lanes).some((card) => card.spec?.start);
  const repeat = branch ? null : "python -m engine repeat driftscope-" + name + "-run-card.json";
  return JSON.stringify({ run: name, lanes, summary: store.summary, repeat }, null, 1);
}
