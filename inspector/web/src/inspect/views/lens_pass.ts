/** A pass of a probed step, as the logit lens shows it. */
import { UNREAD } from "../../base/unread.ts";
import type { Figure } from "../../figures/figure.ts";
import type { HeatSpec } from "../../figures/spec.ts";
import { at } from "../arrays.ts";
import type { CellMap } from "../cell_map.ts";
import {
  lensIds,
  lensLayers,
  lensMap,
  PASSES,
  tokenAt,
  tokenText,
  type LensData,
  type LensIds,
  type LensLayers,
  type Pass,
} from "../lens.ts";
import type { Panel } from "../panel.ts";
import { isDone, planOfStep, type PlanBits } from "../plans.ts";
import { CODE_COLOURS, CODES, plainProbability, shareScale } from "../probability.ts";
import { SITES } from "../sites.ts";

const HEIGHT = 320;
const [ATTENTION, FEED_FORWARD] = [SITES.indexOf("attn"), SITES.indexOf("ffn")];
const PASS_NAMES: Record<Pass, string> = { run: "the run", exact: "the exact pass" };

/** The data of a probed step. */
export interface Scene {
  panel: Panel;
  data: LensData;
  /** Index of the probed step, and the step. */
  probe: number;
  step: number;
  layers: LensLayers;
  /** Null while they are on their way, or if they are missing. */
  ids: LensIds | null;
  /** What is said in place of a token that is not there. */
  unread: string;
  plan: PlanBits | null;
  /** Index among the lens's positions by answer token; -1 for none. */
  places: Int32Array;
  /** The probed step, as the head of titles. */
  shown: string;
}

/**
 * The data of a probed step, given by its index; null if its layers are on their way, or missing,
 * which `figures` say. Those of `byToken` also need the best tokens, and say the same of these.
 */
export function sceneOf(
  panel: Panel,
  data: LensData,
  probe: number,
  figures: readonly Figure[],
  byToken: readonly Figure[] = [],
): Scene | null {
  const { frame, cursor } = panel;
  const step = data.step.values[probe];
  const places = new Int32Array(frame.positions - frame.prompt).fill(-1);
  data.position.values.forEach((position, place) => {
    places[position - frame.prompt] = place;
  });
  const near = cursor.position === null ? 0 : (places[cursor.position - frame.prompt] ?? 0);
  const found = panel.parts<{ layers: LensLayers }>(figures, { layers: lensLayers(probe) });
  const window = lensIds(probe, near, frame.layers, data.position.shape[0]);
  panel.parts(byToken, { ids: window });
  const best = panel.partOrWords<LensIds>(window);
  const [ids, unread] = typeof best === "string" ? [null, best] : [best, UNREAD];
  const plan = panel.part<PlanBits>(planOfStep(step));
  const shown = `Step ${panel.number(step)}`;
  return found && { panel, data, probe, step, ...found, ids, unread, plan, places, shown };
}

/** The codes of a pass; null if they are on their way. */
export function mapOf(
  { panel, probe }: Scene,
  figure: string,
  pass: Pass,
  of: string,
): CellMap | null {
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
export function sharedLooks({
  panel,
}: Scene): Pick<HeatSpec, "x" | "y" | "blank" | "pick" | "at" | "height"> {
  const { frame, cursor, spot } = panel;
  const place = cursor.position === null ? -1 : cursor.position - frame.prompt;
  return {
    x: panel.answers(),
    y: { name: "layer", count: frame.layers },
    blank: "no hidden state: not computed in this step",
    pick: (x, y, pin) => panel.pick({ position: frame.prompt + x, layer: y }, pin),
    at: { x: place >= 0 ? place : null, y: spot.layer },
    height: HEIGHT,
  };
}

/** A token of a pass at a cell, as text; null if there is none, or it is not known yet. */
export function textAt(
  { ids, places }: Scene,
  pass: number,
  x: number,
  layer: number,
): string | null {
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
export function dotsOf({ places }: Scene, layer: (place: number) => number): [number, number][] {
  return Array.from(places).flatMap((place, x): [number, number][] => {
    const y = place < 0 ? -1 : layer(place);
    return y < 0 ? [] : [[x, y]];
  });
}

/** Draw what each layer would predict in a pass. */
export function drawPass(scene: Scene, pass: Pass): void {
  const { panel, layers, shown } = scene;
  const { frame } = panel;
  const of = panel.choice("of");
  const name = "lens-" + pass;
  const side = PASSES.indexOf(pass);
  const map = mapOf(scene, name, pass, of);
  if (!map) return;
  const code = (x: number, layer: number): number => map.at(layer, frame.prompt + x);
  panel.figure(name).show({
    ...sharedLooks(scene),
    ...map.drawn(CODE_COLOURS, frame.prompt),
    title: `${shown}, ${PASS_NAMES[pass]}: what each layer would predict, layer by answer token`,
    key: [name, map.key, scene.plan ? 1 : 0].join(),
    value: (x, y) => (code(x, y) <= CODES ? code(x, y) : null),
    colour: (value) => CODE_COLOURS[value],
    plain: plainProbability,
    legend: shareScale(
      "probability of " + (of === "best" ? "the best token" : "the exact pass's prediction"),
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
  const token = textAt(scene, PASSES.indexOf(pass), x, layer);
  if (token === null) return head + scene.unread;
  const share = `${map.words(layer, column)}${plainProbability(code)}`;
  const kind = panel.choice("of") === "best" ? share : `best; the exact pass's prediction ${share}`;
  const how = pass === "run" ? (reused(scene, x, layer) ? ", reused" : ", recomputed") : "";
  const final = textAt(scene, PASSES.indexOf(pass), x, frame.layers - 1);
  const known = at(scene.layers.stays, PASSES.indexOf(pass), scene.places[x]) >= 0;
  return `${head}${token} ${kind}${how}; ${known && final ? `the last layer gives ${final}` : "the last layer was not computed here"}`;
}
