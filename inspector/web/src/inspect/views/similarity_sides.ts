/** The difference of both lanes' similarity. */
import {
  COSINE_LOOKS,
  cosinesApart,
  decadesApart,
  MARKED_COSINE,
  MARKED_DECADES,
  RATIO_LOOKS,
  ratioWords,
} from "../differences.ts";
import type { LaneName } from "../../race/messages.ts";
import type { CellMap } from "../cell_map.ts";
import { DRIFT } from "../codes.ts";
import type { Panel } from "../panel.ts";
import { commonSteps, cosineText } from "../step_pairs.ts";

/** What of both lanes is compared. */
export interface SimilarityPair {
  /** The compared steps. */
  steps: Readonly<Record<LaneName, readonly number[]>>;
  /** The matrices of these steps. */
  maps: Readonly<Record<LaneName, CellMap>>;
  /** "K in layer 3, prompt". */
  what: string;
  /** Cosines are compared, instead of drifts on a logarithmic scale. */
  linear: boolean;
  /** Changes whenever the values or their scale change. */
  key: string;
}

/** Draw how the similarity of any two steps of lane B differs from that of lane A. */
export function drawSimilarityDifference(panel: Panel, pair: SimilarityPair): void {
  const { maps, linear } = pair;
  const { lanes } = panel.inspector.store;
  const steps = commonSteps(
    { steps: pair.steps.a, before: lanes.a.before },
    { steps: pair.steps.b, before: lanes.b.before },
  );
  const figure = panel.bothFigure("similarity-steps-difference");
  figure.root.classList.add("ds-tall");
  if (!steps.length) return figure.wait("No step was compared in both lanes.");
  const tick = (i: number): string => String(steps[i].step + 1);
  const axis = { name: "step", count: steps.length, tick };
  const drifts = (x: number, y: number): [number, number] => [
    DRIFT[maps.a.at(steps[y].a, steps[x].a)],
    DRIFT[maps.b.at(steps[y].b, steps[x].b)],
  ];
  const apart = (x: number, y: number): number | null =>
    (linear ? cosinesApart : decadesApart)(...drifts(x, y));
  const least = linear ? MARKED_COSINE : MARKED_DECADES;
  const here = panel.cursor.step + panel.lane.before;
  const now = Math.max(
    steps.findLastIndex(({ step }) => step <= here),
    0,
  );
  figure.show({
    ...(linear ? COSINE_LOOKS : RATIO_LOOKS),
    title: `${pair.what}, B compared with A: each step compared with each step`,
    key: pair.key,
    x: axis,
    y: axis,
    value: apart,
    over: (x, y) => (apart(x, y) ?? 0) >= least,
    under: (x, y) => (apart(x, y) ?? 0) <= -least,
    several: "mean",
    words: (x, y) => {
      const [one, other] = drifts(x, y);
      const ratio = linear ? "" : `, ${ratioWords(one, other)}`;
      return `${pair.what}, step ${tick(y)} and step ${tick(x)}: A ${cosineText(one)}, B ${cosineText(other)}${ratio}`;
    },
    pick: (_, y, pin) => panel.pick({ step: steps[y].step - panel.lane.before }, pin),
    at: { x: now, y: now },
    square: 520,
  });
}
