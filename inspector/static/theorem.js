const stage = element.querySelector("[data-theorem]");
const part = (name) => stage.querySelector("[data-" + name + "]");
const TIE = 1e-12;
const SHOWN = 16;
const HANDS = new Map([["high card", 0.25], ["high pair", 0.15], ["two pair", 0.1], ["full house", 0.3], ["straight flush", 0.2]]);
const HAND_WORDS = [["high", "two", "full", "straight"], ["card", "pair", "house", "flush"]];
const HAND_HUNDREDTHS = 71;
let house = false;
let scene = null;

function combinations(words) {
  return words.reduce((rows, own) => rows.flatMap((row) => own.map((_, i) => [...row, i])), [[]]);
}

function joint(words, gap, chance) {
  const rows = combinations(words).map((digits) => {
    const name = digits.map((digit, place) => words[place][digit]).join(gap);
    return { digits, name, p: chance(digits, name) };
  });
  const marginals = words.map((own, place) => own.map((_, i) => mass(rows.filter((row) => row.digits[place] === i))));
  for (const row of rows) row.q = row.digits.reduce((all, digit, place) => all * marginals[place][digit], 1);
  return { rows, marginals };
}

function mass(rows, of = "p") {
  return rows.reduce((sum, row) => sum + row[of], 0);
}

function doubtOf(k, hundredths) {
  const [epsilon, least] = [hundredths / 100, 1 / (k + 1)];
  if (guaranteed(k, hundredths)) return 0.98 * epsilon;
  const delta = Math.min(least, k * (epsilon - least)) / 2;
  return least + delta / k;
}

function guaranteed(k, hundredths) {
  return (k + 1) * hundredths <= 100;
}

function family(k, hundredths, strength) {
  const doubt = doubtOf(k, hundredths);
  return joint(Array(k).fill(["0", "1"]), "", (digits) => {
    const ones = digits.reduce((sum, digit) => sum + digit, 0);
    const free = doubt ** ones * (1 - doubt) ** (k - ones);
    const tied = ones === 0 ? 1 - k * doubt : ones === 1 ? doubt : 0;
    return (1 - strength) * free + strength * tied;
  });
}

function largest(rows, of) {
  const top = Math.max(...rows.map((row) => row[of]));
  return rows.filter((row) => row[of] > top - TIE);
}

function oneByOne(rows, places) {
  let left = rows;
  for (let place = 0; place < places; place++) {
    const totals = new Map();
    for (const row of left) totals.set(row.digits[place], (totals.get(row.digits[place]) || 0) + row.p);
    const top = Math.max(...totals.values());
    const digit = [...totals.keys()].find((key) => totals.get(key) > top - TIE);
    left = left.filter((row) => row.digits[place] === digit);
  }
  return left[0];
}

function sceneOf({ rows, marginals }, k, hundredths, strength) {
  const [bestP, bestQ] = [largest(rows, "p"), largest(rows, "q")];
  const [chain, once] = [oneByOne(rows, k), bestQ[0]];
  return {
    rows, k, hundredths, strength, bestP, bestQ, chain, once,
    epsilon: hundredths / 100,
    tops: marginals.map((own) => Math.max(...own)),
    tv: rows.reduce((sum, { p, q }) => sum + Math.abs(p - q), 0) / 2,
    bound: ((3 * k - 1) * hundredths) / 200,
    safe: guaranteed(k, hundredths),
    same: chain === once,
    listed: [...rows].sort((a, b) => height(b) - height(a)).slice(0, SHOWN),
  };
}

function height({ p, q }) {
  return Math.round(Math.max(p, q) / TIE);
}

function current() {
  if (house) return sceneOf(joint(HAND_WORDS, " ", (_, name) => HANDS.get(name) || 0), 2, HAND_HUNDREDTHS, null);
  const [k, hundredths] = [Number(part("in-k").value), Math.round(part("in-epsilon").value * 100)];
  const strength = Number(part("in-strength").value);
  return sceneOf(family(k, hundredths, strength), k, hundredths, strength);
}

function names(rows) {
  return rows.map((row) => row.name).join(", ") + (rows.length > 1 ? " (tie)" : "");
}

function verdict({ k, epsilon, hundredths, safe, same, once, chain, bestP }) {
  const sum = "(k + 1)ε = " + (k + 1) + " × " + epsilon.toFixed(2) + " = " + (((k + 1) * hundredths) / 100).toFixed(2);
  if (safe) {
    return "Guaranteed: " + sum + " ≤ 1. For any dependency between the tokens, decoding all " + k + " in parallel gives " +
      once.name + ", the most probable outcome of the joint, which decoding one at a time also gives.";
  }
  const open = "Not guaranteed: " + sum + " > 1. ";
  const right = bestP.length === 1 && bestP[0] === once;
  if (same && right) return open + "Here both ways still give " + once.name + ", but for another joint with equally probable top tokens they may differ.";
  const said = "Parallel decoding gives " + once.name + " (P " + once.p.toFixed(3) + "), one at a time " + chain.name + " (P " + chain.p.toFixed(3) + ")";
  const miss = bestP.includes(chain) ? "." : ", and most probable is " + names(bestP) + " (P " + bestP[0].p.toFixed(3) + ").";
  return open + said + miss;
}

function story({ k, epsilon, safe }) {
  if (house) {
    return "Five poker hands of two words each. “high” is the most likely first word and “house” the most likely second word, but there is no hand “high house”: " +
      "chosen independently, the most likely words form a pair that never occurs. The probabilities of both words are far too low for the theorem. Move a slider to leave the example.";
  }
  const limit = "1/" + (k + 1);
  const ends = "In an outcome, 0 stands for the top token of a position and 1 for another token. Dependency 0: the tokens are independent and P = Q. " +
    "Dependency 1: at most one token differs from the top token, which lowers the probability of " + "0".repeat(k) + " as far as these marginals allow. The marginals, and so Q, do not depend on the slider. ";
  const tight = safe
    ? "The bound is tight: with ε just above " + limit + ", the right end of that slider gives a joint with another most probable outcome."
    : "The bound is tight: ε = " + epsilon.toFixed(2) + " is above " + limit + ", and with dependency 1 each outcome with a single 1 is more probable than " + "0".repeat(k) + ".";
  return ends + tight;
}

function facts({ tops, epsilon, bestP, bestQ, chain, once, same, tv, bound }) {
  const alike = tops.every((top) => Math.abs(top - tops[0]) < TIE);
  const sure = (alike ? "each " + tops[0].toFixed(4) : tops.map((top) => top.toFixed(4)).join(", ")) + ", all above 1 − ε = " + (1 - epsilon).toFixed(2);
  return [
    ["Marginals of the top tokens", sure],
    ["Most probable in P", names(bestP)],
    ["Most probable in Q (parallel)", names(bestQ)],
    ["One at a time, left to right", chain.name],
    ["Parallel = one at a time?", same ? "✓ yes, " + once.name : "✗ no, " + once.name + " against " + chain.name],
    ["Total variation of P and Q", tv.toFixed(4) + ", below (3k − 1)ε/2 = " + bound.toFixed(3) + (bound > 1 ? " (above 1, so no constraint)" : "")],
  ];
}

function publish(scene) {
  const join = (rows) => rows.map((row) => row.name).join("|");
  const words = (flag) => (flag ? "yes" : "no");
  Object.assign(stage.dataset, {
    k: scene.k, epsilon: scene.epsilon, dependency: scene.strength ?? "", example: house ? "house" : "",
    pArgmax: join(scene.bestP), qArgmax: join(scene.bestQ), sequential: scene.chain.name, parallel: scene.once.name,
    same: words(scene.same), guaranteed: words(scene.safe), tv: scene.tv, tvBound: scene.bound,
  });
}

function tableRow({ name, p, q }) {
  const row = make("tr");
  Object.assign(row.dataset, { outcome: name, p, q });
  const head = make("th", "", name);
  head.scope = "row";
  row.append(head, make("td", "", p.toFixed(4)), make("td", "", q.toFixed(4)));
  return row;
}

function write() {
  for (const [name, places] of [["k", 0], ["epsilon", 2], ["strength", 2]]) {
    part("out-" + name).textContent = house ? "–" : Number(part("in-" + name).value).toFixed(places);
  }
  part("key=house").setAttribute("aria-pressed", house);
  part("verdict").textContent = verdict(scene);
  part("story").textContent = story(scene);
  const rest = scene.rows.filter((row) => !scene.listed.includes(row));
  part("bars-title").textContent = rest.length ? SHOWN + " of " + scene.rows.length + " outcomes, the largest" : "All " + scene.rows.length + " outcomes";
  part("rest").textContent = rest.length
    ? "The other " + rest.length + " together: P " + mass(rest).toFixed(3) + ", Q " + mass(rest, "q").toFixed(3) + "."
    : "";
  part("facts").replaceChildren(...facts(scene).map(([name, text]) => {
    const pair = make("div");
    pair.append(make("dt", "", name), make("dd", "", text));
    return pair;
  }));
  part("rows").replaceChildren(...scene.rows.map(tableRow));
  part("bars").setAttribute("aria-label", "P and Q of the outcomes. Most probable in P: " + names(scene.bestP) + ". In Q: " + names(scene.bestQ) + ". All numbers are in the table below.");
  part("zone").setAttribute("aria-label", "ε across, k upwards; the guaranteed zone ends at ε = 1/(k + 1). The point ε = " + scene.epsilon.toFixed(2) + ", k = " + scene.k + " is " + (scene.safe ? "inside." : "outside."));
  publish(scene);
}

function draw() {
  if (!stage.clientWidth) return;
  const style = getComputedStyle(stage);
  const read = (name) => style.getPropertyValue(name).trim();
  const inks = { text: read("--ds-text"), soft: read("--ds-soft"), rule: read("--ds-rule"), card: read("--ds-card"), p: read("--ds-th-p"), q: read("--ds-th-q"), zone: read("--ds-th-zone") };
  drawBars(part("bars"), scene, inks);
  drawZone(part("zone"), scene, inks);
}

function refresh() {
  scene = current();
  write();
  draw();
}

function toEdge(past) {
  house = false;
  const k = Number(part("in-k").value);
  part("in-epsilon").value = (Math.floor(100 / (k + 1)) + past) / 100;
  part("in-strength").value = 1;
}

const KEYS = { inside: () => toEdge(0), outside: () => toEdge(1), house: () => (house = !house) };
for (const key of stage.querySelectorAll("[data-key]")) {
  key.addEventListener("click", () => {
    KEYS[key.dataset.key]();
    refresh();
  });
}
for (const name of ["k", "epsilon", "strength"]) {
  part("in-" + name).addEventListener("input", () => {
    house = false;
    refresh();
  });
}
new ResizeObserver(draw).observe(stage);
new MutationObserver(draw).observe(document.body, { attributeFilter: ["class"] });
refresh();
