import { puor } from "../../base/colours.ts";
import { write } from "../../base/dom.ts";
import { plural } from "../../base/format.ts";
import type { HeatSpec } from "../../figures/spec.ts";
import { at } from "../arrays.ts";
import { layerAt, layerAxis, placesOf } from "../axes.ts";
import type { CellMap } from "../cell_map.ts";
import {
  LENS,
  lensIds,
  lensLayers,
  lensMap,
  meanStay,
  PASSES,
  settledShares,
  tokenAt,
  tokenText,
  turnsOf,
  type LensData,
  type LensIds,
  type LensLayers,
  type Pass,
} from "../lens.ts";
import type { Panel } from "../panel.ts";
import { isDone, planOfStep, type PlanBits } from "../plans.ts";
import { CODE_COLOURS, CODES, plainProbability, shareScale } from "../probability.ts";
import { drawProbedSteps, nearest } from "../probed_steps.ts";
import { SITES } from "../sites.ts";
import { viewOf, type Control } from "../view.ts";

const HEIGHT = 320;
/** The least difference of two probabilities that is also drawn as a line in the cell. */
const MARKED = 0.1;
const NAMED_TURNS = 8;
const [ATTENTION, FEED_FORWARD] = [SITES.indexOf("attn"), SITES.indexOf("ffn")];
const PASS_NAMES: Record<Pass, string> = { run: "the run", exact: "the exact pass" };
const OF: Control = {
  name: "of",
  label: "Probability of",
  value: "best",
  options: [
    ["best", "each layer's best token"],
    ["token", "the exact pass's last token"],
  ],
};

/** The data of a probed step. */
interface Scene {
  panel: Panel;
  data: LensData;
  /** Index of the probed step, and the step. */
  probe: number;
  step: number;
  layers: LensLayers;
  /** Null while they are on their way. */
  ids: LensIds | null;
  plan: PlanBits | null;
  /** Index among the lens's positions by answer token; -1 for none. */
  places: Int32Array;
  /** The probed step, as the head of titles. */
  shown: string;
}

/** What each layer of a probed step would predict, beside the exact pass. */
export const lens = viewOf<LensData>({
  title: "Logit lens",
  level: "probe",
  source: LENS,
  about:
    "At the probed steps the hidden state after each layer goes through the final norm and the head, as if no later layer followed: the token that this layer would give. " +
    "A dot marks the layer from which the best token is that of the last layer. Beside the run's own pass stands the exact pass on the same canvas, which reuses nothing; where they part, a stale value has turned the token. " +
    "A reused row still has a hidden state, with stale outputs added. A row that did not enter the step has none, and after the last layer only the rows whose logits the step reads have one.",
  controls: [OF],
  draw(panel, data) {
    const scene = sceneOf(panel, data);
    if (!scene) return;
    drawWords(scene);
    for (const pass of PASSES) drawPass(scene, pass);
    drawDifference(scene);
    drawByLayer(scene);
  },
});

function sceneOf(panel: Panel, data: LensData): Scene | null {
  const { frame, cursor } = panel;
  const steps = Array.from(data.step.values);
  const probe = nearest(steps, panel.spot.step);
  const step = steps[probe];
  drawProbedSteps(panel, steps, probe);
  const places = new Int32Array(frame.positions - frame.prompt).fill(-1);
  data.position.values.forEach((position, place) => {
    places[position - frame.prompt] = place;
  });
  const near = cursor.position === null ? 0 : (places[cursor.position - frame.prompt] ?? 0);
  const layers = panel.part<LensLayers>(lensLayers(probe));
  const ids = panel.part<LensIds>(lensIds(probe, near, frame.layers, data.position.shape[0]));
  const plan = panel.part<PlanBits>(planOfStep(step));
  const shown = `Step ${panel.number(step)}`;
  return layers && { panel, data, probe, step, layers, ids, plan, places, shown };
}

function drawWords({ panel, data, probe, layers, shown }: Scene): void {
  const sum = (values: ArrayLike<number>): number =>
    Array.from(values).reduce((all, value) => all + value, 0);
  const steps = plural(data.step.shape[0], "probed step");
  const predictions = plural(sum(data.predicted.values), "prediction");
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
    ? `Reuse turned ${plural(turns.length, "token")}: ${list}.`
    : "No token was turned by reuse.";
  const some = data.predicted.values[probe];
  const head = some
    ? `${shown}: ${plural(some, "prediction")}; the first layer from which the best token stays is ${run} on average, ${exact} in the exact pass. `
    : `${shown}: nothing was predicted from answer token ${first + 1} on. `;
  write(panel.block("turns", "p", "ds-wide"), head + tail);
}

function mapOf({ panel, probe }: Scene, figure: string, pass: Pass, of: string): CellMap | null {
  const { frame } = panel;
  return panel.map(
    {
      figure,
      query: lensMap(probe, pass, of),
      rows: ["layer", frame.layers],
      columns: ["position", frame.positions - frame.prompt],
      first: frame.prompt,
      height: HEIGHT,
    },
    panel.figure(figure),
  );
}

/** What the maps of a scene have in common. */
function shared({
  panel,
}: Scene): Pick<HeatSpec, "x" | "y" | "blank" | "pick" | "leave" | "at" | "height"> {
  const { frame, cursor, spot } = panel;
  const place = cursor.position === null ? -1 : cursor.position - frame.prompt;
  return {
    x: panel.answers(),
    y: { name: "layer", count: frame.layers },
    blank: "no hidden state: not computed in this step",
    pick: (x, y, pin) => panel.pick({ position: frame.prompt + x, layer: y }, pin),
    leave: () => panel.pick(null, false),
    at: { x: place >= 0 ? place : null, y: spot.layer },
    height: HEIGHT,
  };
}

/** A token of a pass at a cell, as text; null if there is none, or it is not known yet. */
function textAt({ ids, places }: Scene, pass: number, x: number, layer: number): string | null {
  if (!ids || places[x] < 0) return null;
  const id = tokenAt(ids, pass, layer, places[x]);
  return id === null ? null : tokenText(ids.pieces, id);
}

/** Whether an output of the row that predicts an answer token was reused in a layer. */
function reused({ panel, data, plan }: Scene, x: number, layer: number): boolean {
  const row = Math.max(panel.frame.prompt + x - data.shift, 0);
  return (
    plan !== null && ![ATTENTION, FEED_FORWARD].every((site) => isDone(plan, layer, site, row))
  );
}

/** The answer tokens and layers from which something holds; `layers` [n] is -1 where it never does. */
function dotsOf({ places }: Scene, layer: (place: number) => number): [number, number][] {
  return Array.from(places).flatMap((place, x): [number, number][] => {
    const y = place < 0 ? -1 : layer(place);
    return y < 0 ? [] : [[x, y]];
  });
}

function drawPass(scene: Scene, pass: Pass): void {
  const { panel, layers, shown } = scene;
  const { frame } = panel;
  const of = panel.choice("of");
  const name = "lens-" + pass;
  const side = PASSES.indexOf(pass);
  const map = mapOf(scene, name, pass, of);
  if (!map) return;
  const code = (x: number, layer: number): number => map.at(layer, frame.prompt + x);
  panel.figure(name).show({
    ...shared(scene),
    ...map.drawn(CODE_COLOURS, frame.prompt),
    title: `${shown}, ${PASS_NAMES[pass]}: what each layer would predict, layer by answer token`,
    key: [name, map.key, scene.plan ? 1 : 0].join(),
    value: (x, y) => (code(x, y) <= CODES ? code(x, y) : null),
    colour: (value) => CODE_COLOURS[value],
    plain: plainProbability,
    legend: shareScale(
      "probability of " + (of === "best" ? "the best token" : "the exact pass's last token"),
    ),
    unit: "probability",
    column: { name: "best token", text: (x, y) => shownText(scene, side, code(x, y), x, y) },
    under: pass === "run" ? (x, y) => code(x, y) <= CODES && reused(scene, x, y) : undefined,
    underName: pass === "run" ? "an output was reused" : undefined,
    words: (x, y) => passWords(scene, pass, map, x, y),
    dots: dotsOf(scene, (place) => at(layers.stays, side, place)),
    dotName: "the last layer's token from here on",
  });
}

/** The token of a cell that has data. */
function shownText(scene: Scene, pass: number, code: number, x: number, y: number): string | null {
  return code <= CODES ? textAt(scene, pass, x, y) : null;
}

function passWords(scene: Scene, pass: Pass, map: CellMap, x: number, layer: number): string {
  const { panel, step } = scene;
  const { frame } = panel;
  const column = frame.prompt + x;
  const head = `Answer token ${x + 1}, layer ${layer + 1}, step ${panel.number(step)}, ${PASS_NAMES[pass]}: `;
  const code = map.at(layer, column);
  if (code > CODES) return head + "no hidden state, not computed in this step";
  const token = textAt(scene, PASSES.indexOf(pass), x, layer) ?? "reading …";
  const share = `${map.words(layer, column)}${plainProbability(code)}`;
  const kind = panel.choice("of") === "best" ? share : `best; the exact pass's last token ${share}`;
  const how = pass === "run" ? (reused(scene, x, layer) ? ", reused" : ", recomputed") : "";
  const final = textAt(scene, PASSES.indexOf(pass), x, frame.layers - 1);
  const known = at(scene.layers.stays, PASSES.indexOf(pass), scene.places[x]) >= 0;
  return `${head}${token} ${kind}${how}; ${known && final ? `the last layer gives ${final}` : "the last layer was not computed here"}`;
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
    ...shared(scene),
    title: `${shown}: probability of the exact pass's last token, in the run minus in the exact pass`,
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
  const [run, exact] = [0, 1].map((pass) => textAt(scene, pass, x, layer) ?? "reading …");
  const best = run === exact ? `best token ${run} in both` : `best token ${run}, exact ${exact}`;
  const sign = apart > 0 ? "+" : "";
  return `${head}${best}; probability of the exact pass's last token ${sign}${apart.toFixed(3)} against the exact pass`;
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
    x: layerAxis(count),
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
    at: panel.spot.layer + 1,
    words: (x) => {
      const l = layerAt(x, count);
      const [mine, theirs, other] = [run[l], exact[l], differ[l]].map(shareText);
      return `Layer ${l + 1}: decided ${mine} in the run, ${theirs} in the exact pass; ${other} of the tokens differ`;
    },
    pick: (x, _, pin) => panel.pick({ layer: layerAt(x, count) }, pin),
    leave: () => panel.pick(null, false),
    height: 280,
  });
}

function shareText(share: number): string {
  return Number.isNaN(share) ? "unknown" : `${Math.round(100 * share)} %`;
}
