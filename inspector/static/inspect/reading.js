function figureName(spec) {
  const [x, y] = [spec.x.name, spec.y.name];
  const axes = [x && x + " across", y && y + (spec.series ? " upwards" : " downwards")].filter(Boolean);
  const size = spec.series ? "" : ", " + spec.x.count + " by " + spec.y.count + " cells";
  return spec.title + ". " + axes.join(", ") + size + ". Use the arrow keys to read the values.";
}

function plotStops(spec) {
  const plane = spec.words?.length === 2;
  const stops = new Map();
  for (const { xs, ys } of spec.words ? spec.series : []) {
    xs.forEach((x, i) => {
      if (Number.isFinite(ys[i])) stops.set(plane ? x + "," + ys[i] : x, [x, ys[i]]);
    });
  }
  return [...stops.values()].sort((one, other) => one[0] - other[0] || one[1] - other[1]);
}

function plotPlace(spec, stops, stop) {
  const at = stop && (spec.words.length === 2 || stop[0] === spec.at) ? stop : [spec.at ?? stop?.[0] ?? stops[0][0], null];
  const far = ([x, y]) => Math.abs(x - at[0]) + (at[1] === null ? 0 : Math.abs(y - at[1]));
  return stops.reduce((best, one, i) => (far(one) < far(stops[best]) ? i : best), 0);
}
