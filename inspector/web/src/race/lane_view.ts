import { make, part } from "../base/dom.ts";
import { started, type Lane } from "./lane.ts";
import type { LaneName } from "./messages.ts";
import { pill, stats } from "./report.ts";
import { drawAnswer } from "./texts.ts";
import { Grid, type GridEvents } from "./tokens.ts";

/** What a lane is drawn with. */
export interface LaneDrawing {
  lane: Lane;
  frame: number;
  other: Lane;
  otherFrame: number;
  /** What the tokens are coloured by: `state` or `confidence`. */
  colour: string;
  /** Whether the times of the run may be shown. */
  timed: boolean;
}

/** A lane on the page: its title, its numbers, its tokens and its answer. */
export class LaneView {
  readonly grid: Grid;
  private readonly box: HTMLElement;

  constructor(
    root: HTMLElement,
    private readonly name: LaneName,
    events: GridEvents,
  ) {
    this.box = part(root, '[data-lane="' + name + '"]');
    this.grid = new Grid(this.gridBox, events);
  }

  /** The box of the tokens. */
  get gridBox(): HTMLElement {
    return this.find("grid");
  }

  private find(name: string): HTMLElement {
    return part(this.box, "[data-" + name + "]");
  }

  /** Draw the lane. */
  draw({ lane, frame, other, otherFrame, colour, timed }: LaneDrawing): void {
    const { start } = lane;
    this.box.classList.toggle("ds-absent", !start);
    this.find("title").textContent = start ? start.title : "Lane " + this.name.toUpperCase();
    this.find("pill").textContent = pill(lane, frame);
    this.drawProgress(lane, frame);
    this.drawStats(start ? stats(lane, frame, timed) : []);
    drawAnswer(this.find("answer"), lane, frame);
    if (!started(lane)) return;
    this.grid.build(lane);
    this.grid.draw(lane, frame, other, otherFrame, colour);
  }

  private drawProgress(lane: Lane, frame: number): void {
    const count = lane.at.length;
    const share = count ? (100 * (count - lane.masksLeft(frame))) / count : 0;
    const bar = this.find("progress");
    bar.setAttribute("aria-valuenow", String(Math.round(share)));
    part(bar, "i").style.width = `${share}%`;
  }

  private drawStats(rows: readonly (readonly [string, string])[]): void {
    const pairs = rows.map(([label, value]) => {
      const pair = make("div");
      pair.append(make("dt", "", label), make("dd", "", value));
      return pair;
    });
    this.find("stats").replaceChildren(...pairs);
  }
}
