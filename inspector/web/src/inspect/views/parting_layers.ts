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
import { documentOf, type Query } from "../slice.ts";
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

/** A document, why it is missing, or that it is on its way. */
type Read<Data> = Data | Missing | "reading";

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
  const told = parts.filter((one) => one !== null && one !== "reading");
  const lacks = told.filter(isMissing).map(({ missing }) => missing);
  const loaded = [...data, ...parts].map((one) => one !== null);
  const key = [inspector.key, inspector.store.busy, site, ...loaded, ...lacks].join();
  markLayer(box, panel.cursor.layer);
  if (parts.includes("reading") && box.dataset.run !== inspector.key) box.hidden = true;
  if (box.dataset.key === key || parts.includes("reading")) return;
  box.dataset.key = key;
  box.dataset.run = inspector.key;
  box.hidden = !found || found.edits.length > 0;
  if (!found || box.hidden) return;
  const nodes = told.flatMap((one) =>
    isMissing(one) ? [make("p", "", one.missing)] : layerNodes(panel, one, found, site),
  );
  box.replaceChildren(...keys(panel, lanes, data, found), ...nodes);
  markLayer(box, panel.cursor.layer);
}

/** A slice of a lane as a document, or why it is missing. */
function read<Data extends object>(panel: Panel, { name }: Lane, query: Query): Read<Data> {
  const found = panel.slice(query, name);
  if (!found) return "reading";
  if (isMissing(found)) return { missing: `Lane ${name.toUpperCase()}: ${found.missing}` };
  return documentOf<Data>(found);
}

function isThere<Data extends object>(found: Read<Data> | null): found is Data {
  return found !== null && found !== "reading" && !isMissing(found);
}

/** The probed steps of a lane; null if there are none. */
function probesOf(panel: Panel, lane: Lane): Read<ErrorData> | null {
  const frame = panel.inspector.frames[lane.name];
  return frame && hasLevel(frame, "probe") ? read<ErrorData>(panel, lane, PROBES) : null;
}

/** The step at which the lanes diverge in a lane; null if it was not probed. */
function probedIn(
  panel: Panel,
  lane: Lane,
  data: Read<ErrorData> | null,
  found: Parting | null,
): Read<Probed> | null {
  if (!found || data === null) return null;
  if (!isThere(data)) return data;
  const probe = probeOf(data, lane, found.step);
  if (probe < 0) return null;
  const errors = SITE_OPTIONS.map((_, site) => read<MeanErrors>(panel, lane, meanErrors(site)));
  const exact = read<ProbedPredictions>(panel, lane, probedPredictions(probe));
  const known = errors.filter(isThere);
  if (isThere(exact) && known.length === errors.length)
    return { lane, probe, errors: known, exact };
  return [exact, ...errors].find((one) => one !== "reading" && isMissing(one)) ?? "reading";
}

function markLayer(box: HTMLElement, layer: number | null): void {
  for (const key of box.querySelectorAll<HTMLElement>("[data-layer]"))
    key.setAttribute("aria-pressed", String(key.dataset.layer === String(layer)));
}

function keys(
  panel: Panel,
  lanes: readonly Lane[],
  data: readonly (Read<ErrorData> | null)[],
  found: Parting,
): HTMLElement[] {
  const { inspector } = panel;
  const lists = data.map((list) => (isThere(list) ? list : null));
  if (lists.some((list, i) => probeOf(list, lanes[i], found.step) >= 0)) {
    const open = playKey(`Open step ${found.step + 1} in Error against exact`, "open");
    open.addEventListener("click", () => {
      showStep(panel, lanes[1], found.step);
      inspector.open("error");
    });
    return [open];
  }
  const known = data.every((list) => list === null || isThere(list));
  if (!known || !canRecord(inspector)) return [];
  const record = playKey(`Record and probe step ${found.step + 1}`, "probe");
  record.disabled = inspector.store.busy;
  const before = lanes.flatMap((lane, i) =>
    Array.from(lists[i]?.step.values ?? [], (own) => own + lane.before),
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
