import { puor } from "../../base/colours.ts";
import { write } from "../../base/dom.ts";
import { percent, plural } from "../../base/format.ts";
import { LANES } from "../../race/messages.ts";
import { at } from "../arrays.ts";
import { overLayers, placesOf } from "../axes.ts";
import { LENS, meanStay, PASSES, settledShares, turnsOf, type LensData } from "../lens.ts";
import type { Panel } from "../panel.ts";
import { CODES } from "../probability.ts";
import { drawProbedSteps, nearest } from "../probed_steps.ts";
import { bothSides, SIDES_CONTROL } from "../sides.ts";
import { viewOf, type Control } from "../view.ts";
import { dotsOf, drawPass, mapOf, sceneOf, sharedLooks, textAt, type Scene } from "./lens_pass.ts";
import { drawLensSides } from "./lens_sides.ts";

/** The least difference of two probabilities that is also drawn as a line in the cell. */
const MARKED = 0.1;
const NAMED_TURNS = 8;
const OF: Control = {
  name: "of",
  label: "Probability of",
  value: "best",
  options: [
    ["best", "each layer's best token"],
    ["token", "the exact pass's prediction"],
  ],
};

/** What each layer of a probed step would predict, beside the exact pass. */
export const lens = viewOf<LensData>({
  title: "Logit lens",
  level: "probe",
  source: LENS,
  about:
    "At the probed steps the hidden state after each layer goes through the final norm and the head, as if no later layer followed: the token that this layer would give. " +
    "A dot marks the layer from which the best token is that of the last layer. The second map is the exact pass on the same canvas, which reuses nothing; where the two give different tokens, reused values changed the prediction. " +
    "With both lanes side by side, the last map shows where lane B gives another token than lane A, and from which layer on it does so to the end. " +
    "A reused row still has a hidden state, with stale outputs added. A row that did not enter the step has none, and after the last layer only the rows whose logits the step reads have one.",
  controls: [OF, SIDES_CONTROL],
  draw(panel, data) {
    const both = bothSides(panel, "probe");
    for (const name of both ? BOTH : ONE) panel.place(name);
    panel.showFigures(both ? BOTH : ONE);
    if (both) drawLensSides(panel);
    else drawLane(panel, data);
  },
});

const ONE = ["lens-run", "lens-exact", "lens-difference", "lens-layers"];
const BOTH = [...LANES.map((lane) => `lens-run-${lane}`), "lens-lanes", "lens-turns"];

function drawLane(panel: Panel, data: LensData): void {
  const steps = Array.from(data.step.values);
  const probe = nearest(steps, panel.spot.step);
  drawProbedSteps(panel, steps, probe);
  const figures = ONE.map((name) => panel.figure(name));
  const scene = sceneOf(panel, data, probe, figures);
  if (!scene) return;
  drawWords(scene);
  for (const pass of PASSES) drawPass(scene, pass);
  drawDifference(scene);
  drawByLayer(scene);
}

function drawWords({ panel, data, probe, layers, shown }: Scene): void {
  const sum = (values: ArrayLike<number>): number =>
    Array.from(values).reduce((all, value) => all + value, 0);
  const steps = plural(data.step.shape[0], "probed step");
  const predictions = plural(sum(data.predicted.values), "prediction");
  for (const name of ["sum", "turns"]) panel.block(name, "p", "ds-wide").hidden = false;
  write(
    panel.block("sum", "p", "ds-wide"),
    `Over the ${steps}, ${sum(data.flips.values)} of ${predictions} had another best token than the exact pass. The figures show the probed step nearest to the cursor.`,
  );
  const turns = turnsOf(layers);
  const [run, exact] = [0, 1].map((pass) => meanStay(layers, pass).toFixed(1));
  const first = data.position.values[0] - panel.frame.prompt;
  const named = turns.slice(0, NAMED_TURNS).map((turn) => {
    const token = data.position.values[turn.place] - panel.frame.prompt + 1;
    return `answer token ${token}: ${turn.run} in place of ${turn.exact}, different from layer ${turn.layer + 1} on`;
  });
  const list = named.join("; ") + (turns.length > NAMED_TURNS ? "; …" : "");
  const tail = turns.length
    ? `Reuse changed ${plural(turns.length, "token")}: ${list}.`
    : "Reuse changed no token.";
  const some = data.predicted.values[probe];
  const head = some
    ? `${shown}: ${plural(some, "prediction")}; the first layer from which the best token stays is ${run} on average, ${exact} in the exact pass. `
    : `${shown}: nothing was predicted from answer token ${first + 1} on. `;
  write(panel.block("turns", "p", "ds-wide"), head + tail);
}

function drawDifference(scene: Scene): void {
  const { panel, layers, shown } = scene;
  const { frame } = panel;
  const name = "lens-difference";
  const [run, exact] = PASSES.map((pass) => mapOf(scene, name, pass, "token"));
  if (!run || !exact) return;
  const apart = (x: number, layer: number): number | null => {
    const codes = [run, exact].map((map) => map.at(layer, frame.prompt + x));
    return codes.some((code) => !(code <= CODES)) ? null : (codes[0] - codes[1]) / CODES;
  };
  panel.figure(name).show({
    ...sharedLooks(scene),
    title: `${shown}: probability of the exact pass's prediction, in the run minus in the exact pass`,
    key: [name, run.key, exact.key].join(),
    value: apart,
    colour: (value) => puor(0.5 + value / 2),
    plain: (value) => Number(value.toFixed(3)),
    legend: {
      kind: "scale",
      name: "probability in the run − in the exact pass",
      colour: puor,
      ticks: [
        [0, "−1"],
        [0.25, "−0.5"],
        [0.5, "0"],
        [0.75, "0.5"],
        [1, "1"],
      ],
      items: [
        [puor(0.3), `lower in the run by at least ${MARKED}`, "", "under"],
        [puor(0.7), `higher in the run by at least ${MARKED}`, "", "over"],
      ],
    },
    unit: "probability in the run - in the exact pass",
    several: "mean",
    over: (x, y) => (apart(x, y) ?? 0) >= MARKED,
    under: (x, y) => (apart(x, y) ?? 0) <= -MARKED,
    column: { name: "best tokens", text: (x, y) => pairText(scene, x, y, apart(x, y)) },
    words: (x, y) => differenceWords(scene, x, y, apart(x, y)),
    dots: dotsOf(scene, (place) => layers.turned.values[place]),
    dotName: "another token than in the exact pass from here on",
  });
}

/** The best tokens of both passes in a cell that both have. */
function pairText(scene: Scene, x: number, y: number, apart: number | null): string | null {
  const [run, exact] = [0, 1].map((pass) => textAt(scene, pass, x, y));
  if (apart === null || run === null || exact === null) return null;
  return run === exact ? run : `${run} / ${exact}`;
}

function differenceWords(scene: Scene, x: number, layer: number, apart: number | null): string {
  const { panel, step } = scene;
  const head = `Answer token ${x + 1}, layer ${layer + 1}, step ${panel.number(step)}: `;
  if (apart === null) return head + "no hidden state, not computed in this step";
  const [run, exact] = [0, 1].map((pass) => textAt(scene, pass, x, layer));
  if (run === null || exact === null) return head + scene.unread;
  const best = run === exact ? `best token ${run} in both` : `best token ${run}, exact ${exact}`;
  const sign = apart > 0 ? "+" : "";
  return `${head}${best}; probability of the exact pass's prediction ${sign}${apart.toFixed(3)} against the exact pass`;
}

function drawByLayer({ panel, data, probe, layers, shown }: Scene): void {
  const count = panel.frame.layers;
  const xs = placesOf(count);
  const [run, exact] = [0, 1].map((pass) => settledShares(layers, pass, count));
  const differ = xs.map((x) => {
    const all = at(data.compared, probe, x - 1);
    return all ? at(data.differing, probe, x - 1) / all : NaN;
  });
  panel.figure("lens-layers").show({
    title: `${shown}: share of the predictions already decided, and of tokens that differ, by layer`,
    y: { name: "share", from: 0, to: 1 },
    series: [
      { name: "decided, the run", colour: "#0072b2", xs, ys: run },
      { name: "decided, the exact pass", colour: "#e69f00", dash: [6, 3], xs, ys: exact },
      {
        name: "best token differs from the exact pass",
        kind: "bars",
        colour: "#d55e00",
        wide: 0.5,
        xs,
        ys: differ,
      },
    ],
    ...overLayers(panel, (l) => {
      const [mine, theirs, other] = [run[l], exact[l], differ[l]].map(shareText);
      return `Layer ${l + 1}: decided ${mine} in the run, ${theirs} in the exact pass; ${other} of the tokens differ`;
    }),
    height: 280,
  });
}

function shareText(share: number): string {
  return Number.isNaN(share) ? "unknown" : percent(share);
}
