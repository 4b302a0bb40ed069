/** Times of drawing a large heat map, measured by `python -m tests.proofs.heat_times`. */
import { cividis } from "../src/base/colours.ts";
import { HeatState } from "../src/figures/heat_state.ts";
import { HeatScreen } from "../src/figures/screen.ts";
import type { HeatSpec } from "../src/figures/spec.ts";
import { at, type NdArray } from "../src/inspect/arrays.ts";
import { planeCodes } from "../src/inspect/planes.ts";

const [STEPS, LAYERS, POSITIONS] = [1024, 2, 3072];
const BLANK = 255;

/** What is drawn: codes of a layer, with or without `cells`. */
interface Case {
  several: "largest" | "mean";
  /** Draw by `value` and `colour`, as without codes. */
  plain?: boolean;
}

function drifts(): NdArray {
  const values = new Uint8Array(STEPS * LAYERS * POSITIONS);
  for (let i = 0; i < values.length; i++) {
    const noise = (Math.imul(i, 2654435761) >>> 16) & 255;
    values[i] = noise < 60 ? BLANK : noise >> 1;
  }
  return { shape: [STEPS, LAYERS, POSITIONS], values };
}

function specOf(codes: NdArray, layer: number, { several, plain }: Case): HeatSpec {
  const palette = Array.from({ length: BLANK }, (_, code) => cividis(code / BLANK));
  const numbers = Array.from({ length: BLANK }, (_, code) => code * code);
  return {
    title: "Drift",
    key: String(layer),
    x: { name: "position", count: POSITIONS },
    y: { name: "step", count: STEPS },
    value: (x, y) => {
      const code = at(codes, y, layer, x);
      return code === BLANK ? null : code;
    },
    colour: (code) => palette[code],
    cells: plain
      ? undefined
      : (): ReturnType<NonNullable<HeatSpec["cells"]>> => ({
          codes: planeCodes(codes, { rows: 0, columns: 2, at: [0, layer, 0] }),
          palette,
          numbers,
        }),
    several,
    words: () => "",
    height: 500,
  };
}

/** The milliseconds of each draw. */
function timed(screen: HeatScreen, runs: number, draw: (run: number) => void): number[] {
  return Array.from({ length: runs }, (_, run) => {
    const start = performance.now();
    draw(run);
    screen.canvas.getContext("2d")?.getImageData(60, 60, 1, 1);
    return performance.now() - start;
  });
}

/** What can be measured: draws in a box as wide as the page. */
function cases(): Record<string, (runs: number) => number[]> {
  const codes = drifts();
  const screen = new HeatScreen();
  document.body.replaceChildren(screen.root);
  const layers = (one: Case) => (runs: number) =>
    timed(screen, runs, (run) => screen.draw(specOf(codes, run & 1, one), null));
  const state = new HeatState(specOf(codes, 0, { several: "largest" }));
  const box = { left: 46, top: 8, right: 1200, bottom: 466 };
  return {
    "another layer, largest": layers({ several: "largest" }),
    "another layer, mean": layers({ several: "mean" }),
    "another layer, cell by cell": layers({ several: "largest", plain: true }),
    "a step of zoom": (runs) =>
      timed(screen, runs, () => {
        state.zoomAt(box, 0.98, 400, 200);
        screen.draw(state.seen, null);
      }),
    "a move of the cursor": (runs) =>
      timed(screen, runs, (run) =>
        screen.draw(specOf(codes, 0, { several: "largest" }), { x: run, y: run }),
      ),
  };
}

Object.assign(globalThis, { heatTimes: cases() });
