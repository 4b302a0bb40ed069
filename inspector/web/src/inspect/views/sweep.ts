/** The measured sweep over dLLM-Cache's ratio ρ, at the end of the view "Time". */
import { write } from "../../base/dom.ts";
import { number, plural } from "../../base/format.ts";
import type { Series } from "../../figures/spec.ts";
import type { Panel } from "../panel.ts";
import { isMissing } from "../view.ts";

/** The recorded sweep (`engine.bench.ratio_sweep`). */
export interface SweepData {
  model: string;
  prompt_tokens: number;
  gen_length: number;
  rounds: number;
  environment: { device_name: string; threads: number };
  /** Milliseconds per position of the answer at a ratio ρ and a refresh interval. */
  points: { rho: number; interval: number; tpot_ms: number }[];
  /** For each interval, milliseconds per position as a0 + (a1 if ρ > 0) + b ρ. */
  fits: { interval: number; a0: number; a1: number; b: number; r2: number }[];
}

const LOOKS: readonly (readonly [string, readonly number[]])[] = [
  ["#0072b2", []],
  ["#d55e00", [6, 3]],
  ["#009e73", [2, 3]],
  ["#cc79a7", [8, 3, 2, 3]],
];
const LINE_POINTS = 51;

/** Draw the sweep, or say why it is not there. */
export function drawSweep(panel: Panel): void {
  const { inspector, cursor } = panel;
  const said = panel.block("rho", "p", "ds-wide");
  const figure = panel.figure("rho", []);
  figure.root.classList.add("ds-wide");
  const found = inspector.given(cursor.lane, "rho");
  const data = inspector.document<SweepData>(cursor.lane, "rho");
  said.hidden = !data;
  if (!data) return figure.wait(found && isMissing(found) ? found.missing : null);
  write(said, sweepSentence(data));
  figure.show({
    about: { run: undefined, lane: undefined },
    title:
      "Measured sweep, dLLM-Cache: positions per second by ρ, the share of the answer recomputed between refreshes",
    x: { name: "ρ", from: 0, to: 1 },
    y: { name: "positions/s", from: 0, to: Math.max(...data.points.map(rate)) * 1.05 },
    series: data.fits.flatMap((fit, i) => fitSeries(data, fit, i)),
    words: (x) => sweepWords(data, x),
    height: 280,
  });
}

/** Positions of the answer per second at a point, with those of the padding. */
function rate(point: { tpot_ms: number }): number {
  return 1000 / point.tpot_ms;
}

function fitSeries(data: SweepData, fit: SweepData["fits"][number], i: number): Series[] {
  const [colour, dash] = LOOKS[i % LOOKS.length];
  const points = data.points.filter((point) => point.interval === fit.interval);
  const xs = Array.from({ length: LINE_POINTS }, (_, k) => Math.max(k / (LINE_POINTS - 1), 1e-6));
  const line = xs.map((rho) => 1000 / (fit.a0 + fit.a1 + fit.b * rho));
  return [
    {
      name: `K_r = ${fit.interval}`,
      table: `K_r = ${fit.interval}, fitted`,
      colour,
      dash,
      xs,
      ys: line,
    },
    {
      name: "",
      table: `K_r = ${fit.interval}, measured`,
      kind: "points",
      colour,
      size: 4,
      xs: points.map((point) => point.rho),
      ys: points.map(rate),
    },
  ];
}

/** The measured rates at the ratio next to x. */
export function sweepWords(data: SweepData, x: number): string {
  const ratios = data.points.map((point) => point.rho);
  const near = ratios.reduce((best, rho) => (Math.abs(rho - x) < Math.abs(best - x) ? rho : best));
  const parts = data.points
    .filter((point) => point.rho === near)
    .map((point) => {
      const spent = point.tpot_ms.toFixed(2);
      return `K_r ${point.interval} ${number(rate(point), 0)} positions/s (${spent} ms per position)`;
    });
  return `ρ = ${near}: ${parts.join(", ")}`;
}

function sweepSentence(data: SweepData): string {
  const costs = data.fits.map(
    ({ a0, a1, interval }) => `${a1.toFixed(2)} of ${(a0 + a1).toFixed(2)} ms at K_r = ${interval}`,
  );
  const worst = Math.min(...data.fits.map((fit) => fit.r2));
  const { device_name, threads } = data.environment;
  return (
    `The fixed cost a₁ per position of selecting any rows at all, as part of the time at the smallest ρ: ${costs.join("; ")}. ` +
    `The lines are least-squares fits of 1 / (a₀ + a₁ + b ρ), without a₁ at ρ = 0. For every K_r they explain at least ${Math.floor(100 * worst)} % of the variance. ` +
    `${data.model}, prompt of ${data.prompt_tokens} tokens, answer of ${data.gen_length} positions, median of ${plural(data.rounds, "round")} on ${device_name}, ${plural(threads, "thread")}.`
  );
}
