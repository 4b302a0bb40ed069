import { make, part, write } from "../base/dom.ts";
import { started, type Lane } from "./lane.ts";
import { ImageStrips } from "./images.ts";
import type { LaneName } from "./messages.ts";
import { pill, stats } from "./report.ts";
import { drawAnswer } from "./prompt_and_answer.ts";
import { Grid, type GridDrawing, type GridEvents } from "./tokens.ts";

/** What a lane is drawn with. */
export interface LaneDrawing extends Omit<GridDrawing, "lane"> {
  lane: Lane;
}

/** A lane on the page: its title, its numbers, its tokens and its answer. */
export class LaneView {
  readonly grid: Grid;
  private readonly strips: ImageStrips;
  private readonly box: HTMLElement;

  constructor(
    root: HTMLElement,
    private readonly name: LaneName,
    events: GridEvents,
    pick: (position: number) => void,
  ) {
    this.box = part(root, '[data-lane="' + name + '"]');
    this.grid = new Grid(this.gridBox, events);
    this.strips = new ImageStrips(this.find("images"), pick);
  }

  /** The box of the tokens. */
  get gridBox(): HTMLElement {
    return this.find("grid");
  }

  private find(name: string): HTMLElement {
    return part(this.box, "[data-" + name + "]");
  }

  /** Draw the lane. */
  draw(drawing: LaneDrawing): void {
    const { lane, frame } = drawing;
    const { start } = lane;
    this.box.classList.toggle("ds-absent", !start);
    write(this.find("title"), start ? start.title : "Lane " + this.name.toUpperCase());
    write(this.find("pill"), pill(lane, frame));
    this.drawProgress(lane, frame);
    this.drawStats(start ? stats(lane, frame) : []);
    this.strips.draw(lane.images);
    drawAnswer(this.find("answer"), lane, frame);
    if (!started(lane)) return;
    this.grid.build(lane);
    this.grid.draw({ ...drawing, lane });
  }

  private drawProgress(lane: Lane, frame: number): void {
    const count = lane.at.length;
    const share = count ? (100 * (count - lane.masksLeft(frame))) / count : 0;
    const bar = this.find("progress");
    bar.setAttribute("aria-valuenow", String(Math.round(share)));
    part(bar, "i").style.width = `${share}%`;
  }

  private drawStats(rows: readonly (readonly [string, string])[]): void {
    const list = this.find("stats");
    if (list.children.length !== rows.length) {
      const pairs = rows.map(() => make("div"));
      for (const pair of pairs) pair.append(make("dt"), make("dd"));
      list.replaceChildren(...pairs);
    }
    rows.forEach(([label, value], i) => {
      write(part(list.children[i], "dt"), label);
      write(part(list.children[i], "dd"), value);
    });
  }
}
