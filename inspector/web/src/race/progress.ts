import { write } from "../base/dom.ts";
import { plural, roughTime } from "../base/format.ts";
import { visible } from "../base/token_text.ts";
import type { Wait } from "./messages.ts";

type Loading = Extract<Wait, { what: string }>;
type Queue = Exclude<Wait, Loading>;

/** Decimal units of bytes; values that would be rounded up to a unit are in this unit. */
const UNITS: readonly (readonly [number, string])[] = [
  [1e12, "TB"],
  [1e9, "GB"],
  [1e6, "MB"],
  [1e3, "kB"],
];

/** The scale and name of the unit in which so much is told. `unit` is a plural. */
function unitOf(count: number, unit: string): readonly [number, string] {
  const found = unit === "bytes" && UNITS.find(([scale]) => count >= 0.9995 * scale);
  return found || [1, count === 1 ? unit.replace(/s$/, "") : unit];
}

/** A count in a unit, with three digits or, at scale 1, without decimals. */
function inUnit(count: number, scale: number): string {
  const value = count / scale;
  if (scale === 1 || value >= 99.95) return value.toFixed(0);
  return value.toFixed(value >= 9.995 ? 1 : 2);
}

function shareDone(wait: Loading): number {
  return Math.min(Math.max(wait.done / wait.total, 0), 1);
}

function isQueue(wait: Wait): wait is Queue {
  return wait.ahead !== undefined;
}

function queueWords(wait: Queue): string {
  const time = wait.seconds === null ? "" : "at most about " + roughTime(wait.seconds);
  if (!wait.ahead) return time && "for " + time;
  return `${plural(wait.ahead, "run")} ahead of yours · ${time || "no estimate yet"}`;
}

function loadingWords(wait: Loading): string {
  const [scale, unit] = unitOf(wait.total || wait.done, wait.unit);
  const done = inUnit(wait.done, scale);
  const parts = [wait.what && visible(wait.what)];
  if (wait.total) {
    parts.push(`${Math.floor(100 * shareDone(wait))} %`);
    parts.push(`${done} of ${inUnit(wait.total, scale)} ${unit}`);
  } else if (wait.done) parts.push(`${done} ${unit}`);
  return parts.filter(Boolean).join(" · ");
}

/** What is waited for: what is loaded and how much of it, or the runs ahead in the queue. */
export function waitWords(wait: Wait): string {
  return isQueue(wait) ? queueWords(wait) : loadingWords(wait);
}

/** The same for speech, in quarters of what is loaded; empty if there is nothing to say. */
export function spokenWait(wait: Wait | null): string {
  if (!wait) return "";
  if (isQueue(wait)) return queueWords(wait);
  if (!wait.total) return "";
  const [scale, unit] = unitOf(wait.total, wait.unit);
  const quarters = Math.floor(4 * shareDone(wait)) * 25;
  return `${quarters} % of ${inUnit(wait.total, scale)} ${unit}`;
}

/** The nodes that show a wait: the box with a bar and words. */
export interface WaitNodes {
  box: HTMLElement;
  bar: HTMLProgressElement;
  words: HTMLElement;
}

/** Draw a wait; null hides the box. */
export function drawWait({ box, bar, words }: WaitNodes, wait: Wait | null): void {
  const told = wait ? waitWords(wait) : "";
  box.hidden = !told;
  bar.hidden = !wait || isQueue(wait);
  if (!wait || !told) return;
  if (!isQueue(wait) && wait.total) bar.value = shareDone(wait);
  else bar.removeAttribute("value");
  write(words, told);
}
