import { puor, type Rgb } from "../../base/colours.ts";
import { make } from "../../base/dom.ts";
import { headCell, headedRow, headedTable } from "../../base/table.ts";
import { quoted } from "../../base/token_text.ts";
import { READING } from "../../base/unread.ts";
import type { ScaleLegend } from "../../figures/spec.ts";
import { termNodes } from "../../page/glossary.ts";
import { sameVocabulary, type Lane, type StartedLane } from "../../race/lane.ts";
import type { Align } from "../../race/store.ts";
import { shortened } from "../axes.ts";
import { firstSplit, splitLines, type RunFacts } from "../first_split.ts";
import { parting, partingLines, type Parting } from "../parting.ts";
import { canRecord } from "../inspector_options.ts";
import { answerRows, branchNumberWords, numberRows } from "../lane_numbers.ts";
import type { Panel } from "../panel.ts";
import { rowsDone, tokenRows, type RowsDone, type TokenRows } from "../plans.ts";
import { SITE_OPTIONS } from "../quantities.ts";
import type { View } from "../view.ts";
import { candidatesOf, type CandidateData } from "./candidates.ts";
import { drawParting, hideParting } from "./parting_layers.ts";

const STEP_RANGE = 64;
const SAME_COLOUR: Rgb = [200, 208, 218];
const DIFFERENT_COLOUR: Rgb = [213, 94, 0];
/** The values of the lower row of the strip. Those of the upper row are steps, far below. */
const SAME_TOKEN = 1e6;
const DIFFERENT_TOKEN = SAME_TOKEN + 1;
const ALIGNED: Record<Align, string> = {
  time: "by time: each lane shows its tokens after the same run time",
  step: "by step: both lanes show the same number of steps",
  tokens: "by known tokens: both lanes show the same number of tokens",
};
const STRIP_LEGEND: ScaleLegend = {
  kind: "scale",
  name: "B's step − A's",
  colour: puor,
  ticks: [
    [0, "≤ −64"],
    [0.25, "−32"],
    [0.5, "0"],
    [0.75, "32"],
    [1, "≥ 64"],
  ],
  items: [
    [puor(0.3), "earlier in B", "◂", "over"],
    [puor(0.7), "later in B", "▸", "under"],
    [SAME_COLOUR, "same token", "="],
    [DIFFERENT_COLOUR, "different token", "≠"],
  ],
};

/** Where and why the two lanes differ, and the cost of each. */
export const compare: View = {
  title: "Compare",
  level: "off",
  controls: [
    { name: "site", label: "Rank layers by the error of", value: "2", options: SITE_OPTIONS },
  ],
  about:
    "When, where and why the two lanes differ, and the cost of each. In time, they diverge at the first step that does not commit the same tokens in both. In reading order, from left to right, their answers first differ at the first token that is not the same. The two need not be the same place. The upper row of the strip compares when each answer token was committed: " +
    "orange, ◂ and a line above if lane B was earlier than lane A; purple, ▸ and a line below if it was later. The lower row shows whether both lanes chose the same token.",
  draw(panel) {
    const { inspector } = panel;
    const { started } = inspector.store;
    if (started.length < 2) {
      panel.say("Only one lane was run, so there is no comparison.");
      return;
    }
    const [a, b] = started;
    const apart = inspector.store.summary?.apart ?? "";
    if (apart) {
      panel.say(apart + " The numbers of each lane are under the lanes.");
      return;
    }
    writeLines(panel.block("aligned", "div", "ds-room ds-wide"), [
      `The lanes above are aligned ${ALIGNED[inspector.align()]}. The replay bar changes the alignment.`,
    ]);
    const same = sameVocabulary(a.start, b.start);
    panel.showFigures(same ? ["compare-strip"] : []);
    if (!same) {
      writeLines(panel.block("parting", "div", "ds-parting ds-wide"), [
        "The lanes have different vocabularies, so their tokens are not compared one by one.",
      ]);
      hideParting(panel);
      drawTable(panel, a, b);
      return;
    }
    const found = parting(a, b);
    const lines = linesOf(panel, a, b, found);
    const node = panel.block("parting", "div", "ds-parting ds-wide");
    if (panel.complete || node.dataset.run !== inspector.key)
      writeLines(node, panel.complete ? lines : [READING]); // not those of another run
    if (panel.complete) node.dataset.run = inspector.key;
    drawParting(panel, [a, b], found);
    drawStrip(panel, a, b);
    drawTable(panel, a, b);
  },
};

/** Write paragraphs into a block; the same ones are left as they are. */
function writeLines(node: HTMLElement, lines: readonly string[]): void {
  const key = lines.join("\n");
  if (node.dataset.key === key) return;
  node.dataset.key = key;
  node.replaceChildren(...lines.map((line) => make("p", "", line)));
}

function linesOf(panel: Panel, a: Lane, b: Lane, found: Parting | null): string[] {
  const { inspector } = panel;
  const facts: RunFacts = {
    recordable: canRecord(inspector),
    frames: inspector.frames,
    done: (lane) => panel.part<RowsDone>(rowsDone(), lane),
    candidates: (lane, step) => panel.part<CandidateData>(candidatesOf(step), lane),
    token: (lane, position) => panel.part<TokenRows>(tokenRows(position), lane),
  };
  return [
    ...partingLines(found, a, b, facts),
    ...splitLines(firstSplit(a, b), facts, found?.step ?? null),
  ];
}

/** A cell of the strip: steps by which B was later, or SAME_TOKEN or DIFFERENT_TOKEN. */
function stripValue(a: Lane, b: Lane, place: number, row: number): number | null {
  const [mine, theirs] = [a.at[place], b.at[place]];
  if (!mine || !theirs) return null;
  if (row) return mine.id === theirs.id ? SAME_TOKEN : DIFFERENT_TOKEN;
  if (mine.row < 0 || theirs.row < 0) return null;
  return b.stepNumber(theirs.row) - a.stepNumber(mine.row);
}

function stripColour(value: number): Rgb {
  if (value === SAME_TOKEN) return SAME_COLOUR;
  if (value === DIFFERENT_TOKEN) return DIFFERENT_COLOUR;
  return puor(0.5 + value / (2 * STEP_RANGE));
}

function stripGlyph(value: number): string {
  if (value === SAME_TOKEN) return "=";
  if (value === DIFFERENT_TOKEN) return "≠";
  return ["◂", "0", "▸"][Math.sign(value) + 1];
}

function stripPlain(value: number): number | string {
  if (value === SAME_TOKEN) return "same";
  return value === DIFFERENT_TOKEN ? "different" : value;
}

function drawStrip(panel: Panel, a: Lane, b: Lane): void {
  const { inspector, cursor, frame } = panel;
  const later = (x: number, row: number): number => (row ? 0 : (stripValue(a, b, x, row) ?? 0));
  const count = Math.min(a.at.length, b.at.length);
  const place = cursor.position === null ? -1 : cursor.position - frame.prompt;
  const figure = panel.bothFigure("compare-strip");
  figure.root.classList.add("ds-wide");
  figure.show({
    about: { lane: undefined },
    title: "When B committed each answer token, compared with A, and whether it is the same",
    key: "strip" + inspector.key,
    x: shortened(panel.answers(), count),
    y: { name: "", count: 2, tick: (i) => ["step", "token"][i] },
    value: (x, row) => stripValue(a, b, x, row),
    colour: stripColour,
    glyph: stripGlyph,
    over: (x, row) => later(x, row) < 0,
    under: (x, row) => later(x, row) > 0,
    legend: STRIP_LEGEND,
    blank: "not committed in both",
    unit: "steps later in B; same",
    plain: stripPlain,
    words: (x) => stripWords(a, b, x),
    pick: (x, _, pin) => panel.pick({ position: frame.prompt + x }, pin),
    at: { x: place < 0 || place >= count ? null : place, y: null },
    height: 120,
  });
}

function stripWords(a: Lane, b: Lane, place: number): string {
  const parts = [a, b].map((lane) => {
    const name = lane.name.toUpperCase();
    const token = lane.at[place];
    if (!token) return name + " not committed";
    const when =
      token.row < 0 ? `(${lane.knownWords(place)})` : `at step ${lane.stepNumber(token.row)}`;
    return `${name} ${quoted(lane.pieces.get(token.id))} ${when}`;
  });
  return `Answer token ${place + 1}: ${parts.join(", ")}`;
}

function drawTable(panel: Panel, a: StartedLane, b: StartedLane): void {
  const { inspector } = panel;
  const { store } = inspector;
  const node = panel.block("numbers", "div", "ds-scroll ds-wide");
  const key = inspector.key + store.state;
  if (node.dataset.key === key) return;
  node.dataset.key = key;
  const table = numbersTable([...numberRows(a, b, store.timed), ...answerRows(store.summary)]);
  const branch = branchNumberWords([a, b], Boolean(store.parent));
  const untimed = store.foreign
    ? "A lane has no times."
    : "Runs whose layers are recorded show no times.";
  const times = store.timed ? "" : untimed;
  node.replaceChildren(table, make("p", "ds-room", branch + times));
  node.tabIndex = 0;
  node.role = "region";
  node.ariaLabel = "Numbers of both lanes";
}

/** The table of some rows of texts: the heads of the columns, and measures that link to terms. */
export function numbersTable([heads, ...rows]: readonly (readonly string[])[]): HTMLTableElement {
  const seen = new Set<string>();
  const lines = rows.map(([name, ...texts]) => {
    const head = headCell("row");
    head.append(...termNodes(name, seen));
    const cells = texts.map((text) => make("td", "", text));
    return headedRow(head, cells);
  });
  return headedTable(heads, lines, "ds-numbers");
}
