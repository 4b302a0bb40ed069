/** Of the view Compare: the step at which the lanes diverge, its probe and its layers. */
import { make } from "../../base/dom.ts";
import { headedTable } from "../../base/table.ts";
import type { Lane } from "../../race/lane.ts";
import { canRecord } from "../inspector_options.ts";
import type { Panel } from "../panel.ts";
import {
  exactLines,
  probeOf,
  rankedLayers,
  rankingWords,
  type LayerError,
  type Parting,
} from "../parting.ts";
import { SITE_OPTIONS } from "../quantities.ts";
import { hasLevel, isMissing, type Missing } from "../view.ts";
import {
  meanErrors,
  probedPredictions,
  PROBES,
  type ErrorData,
  type MeanErrors,
  type ProbedPredictions,
} from "../probes.ts";

const MOST_PROBES = 64; // the server probes at most so many steps

/** What is known of the probed step of a lane at which the lanes diverge. */
interface Probed {
  lane: Lane;
  /** The index of the step among the probed ones. */
  probe: number;
  /** The mean errors of each site. */
  errors: readonly MeanErrors[];
  exact: ProbedPredictions;
}

function boxOf(panel: Panel): HTMLElement {
  return panel.block("layers", "div", "ds-parting ds-wide");
}

/** Hide what `drawParting` drew of another run: these lanes are not compared. */
export function hideParting(panel: Panel): void {
  const box = boxOf(panel);
  box.hidden = true;
  delete box.dataset.key;
}

/** Draw a key that probes the step at which the lanes diverge, or the layers by their error. */
export function drawParting(panel: Panel, lanes: readonly Lane[], found: Parting | null): void {
  const { inspector } = panel;
  const box = boxOf(panel);
  const site = Number(panel.choice("site"));
  const data = lanes.map((lane) => probesOf(panel, lane));
  const parts = lanes.map((lane, i) => probedIn(panel, lane, data[i], found));
  const probed = parts.filter((one) => one !== null && one !== "reading");
  const lacks = probed.filter(isMissing).map(({ missing }) => missing);
  const loaded = [...data, ...parts].map((one) => one !== null);
  const key = [inspector.key, inspector.store.busy, site, ...loaded, ...lacks].join();
  markLayer(box, panel.cursor.layer);
  if (parts.includes("reading") && box.dataset.run !== inspector.key) box.hidden = true;
  if (box.dataset.key === key || parts.includes("reading")) return;
  box.dataset.key = key;
  box.dataset.run = inspector.key;
  box.hidden = !found || found.edits.length > 0;
  if (!found || box.hidden) return;
  const nodes = probed.flatMap((one) =>
    isMissing(one) ? [make("p", "", one.missing)] : layerNodes(panel, one, found, site),
  );
  box.replaceChildren(...keys(panel, lanes, data, found, probed.length > 0), ...nodes);
  markLayer(box, panel.cursor.layer);
}

/** The probed steps of a lane; null if there are none, or they are not read yet. */
function probesOf(panel: Panel, { name }: Lane): ErrorData | null {
  const frame = panel.inspector.frames[name];
  return frame && hasLevel(frame, "probe") ? panel.part<ErrorData>(PROBES, name) : null;
}

/** The step at which the lanes diverge in a lane, or why it is missing; null if it was not probed. */
function probedIn(
  panel: Panel,
  lane: Lane,
  data: ErrorData | null,
  found: Parting | null,
): Probed | Missing | "reading" | null {
  const probe = found ? probeOf(data, lane, found.step) : -1;
  if (probe < 0) return null;
  const errors = SITE_OPTIONS.map((_, site) => panel.part<MeanErrors>(meanErrors(site), lane.name));
  const exact = panel.part<ProbedPredictions>(probedPredictions(probe), lane.name);
  const known = errors.filter((one) => one !== null);
  if (exact && known.length === errors.length) return { lane, probe, errors: known, exact };
  const queries = [probedPredictions(probe), ...SITE_OPTIONS.map((_, site) => meanErrors(site))];
  const gone = queries
    .map((query) => panel.slice(query, lane.name))
    .find((one): one is Missing => one !== undefined && isMissing(one));
  return gone ? { missing: `Lane ${lane.name.toUpperCase()}: ${gone.missing}` } : "reading";
}

function markLayer(box: HTMLElement, layer: number | null): void {
  for (const key of box.querySelectorAll<HTMLElement>("[data-layer]"))
    key.setAttribute("aria-pressed", String(key.dataset.layer === String(layer)));
}

function keys(
  panel: Panel,
  lanes: readonly Lane[],
  data: readonly (ErrorData | null)[],
  found: Parting,
  probed: boolean,
): HTMLElement[] {
  const { inspector } = panel;
  if (probed) {
    const open = playKey(`Open step ${found.step + 1} in Error against exact`, "open");
    open.addEventListener("click", () => {
      showStep(panel, lanes[1], found.step);
      inspector.open("error");
    });
    return [open];
  }
  if (!canRecord(inspector)) return [];
  const record = playKey(`Record and probe step ${found.step + 1}`, "probe");
  record.disabled = inspector.store.busy;
  const before = lanes.flatMap((lane, i) =>
    Array.from(data[i]?.step.values ?? [], (own) => own + lane.before),
  );
  record.addEventListener("click", () => {
    const steps = [...new Set([found.step, ...before])].slice(0, MOST_PROBES);
    inspector.onRecord({ level: "probe", probe_at: steps });
  });
  return [record];
}

function playKey(text: string, name: string): HTMLButtonElement {
  const key = make("button", "ds-play", text);
  key.type = "button";
  key.dataset.parting = name;
  return key;
}

function showStep(panel: Panel, lane: Lane, step: number, layer?: number): void {
  const own = Math.min(Math.max(step - lane.before, 0), lane.rows.length - 1);
  const place = { lane: lane.name, step: own };
  panel.inspector.cursor.move(layer === undefined ? place : { ...place, layer });
}

function layerNodes(
  panel: Panel,
  { lane, probe, errors, exact }: Probed,
  found: Parting,
  site: number,
): HTMLElement[] {
  const ranked = rankedLayers(errors, probe, site);
  const words = make("p", "", rankingWords(lane, ranked, site));
  if (ranked.every(({ means }) => means.every((mean) => !(mean > 0)))) return [words];
  const lines = exactLines(found, lane, exact, lane.start?.prompt.length ?? 0);
  const told = lines.map((line) => make("p", "", line));
  return [words, ...told, layerTable(panel, lane, ranked, found.step)];
}

function layerTable(
  panel: Panel,
  lane: Lane,
  ranked: readonly LayerError[],
  step: number,
): HTMLElement {
  const name = lane.name.toUpperCase();
  const title = `Lane ${name}, step ${step + 1}: mean error (1 − cosine) of the rows in the forward`;
  const lines = ranked.map(({ layer, means }, rank) => {
    const line = make("tr");
    const key = make("button", "ds-pick", String(layer + 1));
    key.type = "button";
    key.setAttribute("aria-label", `Layer ${layer + 1} of lane ${name}`);
    key.dataset.layer = String(layer);
    key.addEventListener("click", () => showStep(panel, lane, step, layer));
    const cell = make("td");
    cell.append(key);
    const errors = means.map((mean) => make("td", "", errorText(mean)));
    line.append(make("td", "", String(rank + 1)), cell, ...errors);
    return line;
  });
  const heads = ["Rank", "Layer", ...SITE_OPTIONS.map(([, text]) => text)];
  const table = headedTable(heads, lines, "ds-ranked");
  table.prepend(make("caption", "", title));
  const box = make("div", "ds-scroll ds-ranking");
  box.tabIndex = 0;
  box.role = "region";
  box.ariaLabel = title;
  box.append(table);
  return box;
}

function errorText(mean: number): string {
  if (Number.isNaN(mean)) return "no row";
  return mean === 0 ? "0" : mean.toPrecision(2);
}
