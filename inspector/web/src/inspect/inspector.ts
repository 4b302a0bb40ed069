import { onRecolour, part, write } from "../base/dom.ts";
import { quoted } from "../base/token_text.ts";
import { OncePerFrame } from "../figures/frames.ts";
import { imagePlace } from "../race/images.ts";
import { LANES, type LaneName } from "../race/messages.ts";
import { recordingNews, recordWords } from "../race/report.ts";
import type { Align, Store } from "../race/store.ts";
import { Cursor, type Spot } from "./cursor.ts";
import { CAUSAL, emptyViews, levelWords } from "./empty_views.ts";
import { canRecord, type Branch } from "./inspector_options.ts";
import type { InspectorOptions, RecordWish } from "./inspector_options.ts";
import { tellingStep } from "./opening.ts";
import { Panel } from "./panel.ts";
import { documentOf } from "./slice.ts";
import { Slices } from "./slices.ts";
import { Tabs } from "./tabs.ts";
import { TimedDocuments } from "./timed_documents.ts";
import { hasLevel, isMissing, type Frame, type View } from "./view.ts";
import { card } from "./views/card.ts";
import { HOME, VIEWS, type ViewName } from "./views/index.ts";

/** What all views share of a lane. */
const FRAME = { view: "frame" };

/** The inspector: a cursor, the views as tabs, and the card of the chosen token. */
export class Inspector {
  readonly root: HTMLElement;
  readonly store: Store;
  readonly cursor = new Cursor((how) => this.moved(how));
  readonly panels: Partial<Record<ViewName, Panel>> = {};
  readonly offline: () => boolean;
  readonly onBranch: (branch: Branch) => void;
  readonly onRecord: (wish: RecordWish) => void;
  /** How the frames of the two lanes are matched at the moment. */
  readonly align: () => Align;
  /** Called after every drawing. */
  readonly watchers: (() => void)[] = [];
  frames: Partial<Record<LaneName, Frame>> = {};
  name: ViewName = HOME;
  /** The slices of the views. */
  readonly slices: Slices;
  /** Whether the inspector was on the screen; before, nothing is loaded. */
  seen = false;
  /** Changes whenever the documents change. */
  key = "";
  private readonly atRest: () => boolean;
  private readonly onMove: (spot: Readonly<Spot>) => void;
  private readonly documents: TimedDocuments;
  private readonly tabs: Tabs;
  private card: Panel | null = null;
  private readonly come = new OncePerFrame();
  /** Whether the cursor was put into the run, once its frames were there. */
  private placed = false;
  /** The lanes at whose telling step the inspector was opened. */
  private opened: Store["lanes"] | null = null;

  constructor({ ask, source, ...options }: InspectorOptions) {
    this.root = options.root;
    this.store = options.store;
    this.documents = new TimedDocuments(ask, () => this.load());
    this.slices = new Slices({ source, onCome: () => this.come.run(() => this.draw()) });
    this.onMove = options.onMove;
    this.onBranch = options.onBranch;
    this.onRecord = options.onRecord;
    this.align = options.align;
    this.atRest = options.atRest;
    this.offline = options.offline;
    this.tabs = new Tabs(this.find("tabs"), this.find("panel"), (name) => this.open(name));
    this.markTab();
    this.listen();
  }

  private find<E extends HTMLElement = HTMLElement>(name: string): E {
    return part<E>(this.root, "[data-inspect-" + name + "]");
  }

  private listen(): void {
    for (const name of LANES) {
      this.find("lane-" + name).addEventListener("click", () =>
        this.cursor.move({ lane: name, ...this.follow(name) }),
      );
    }
    for (const name of ["layer", "step"] as const) {
      const slider = this.find<HTMLInputElement>(name);
      slider.addEventListener("input", () => this.cursor.move({ [name]: +slider.value }));
    }
    this.find("step-back").addEventListener("click", () => this.stepBy(-1));
    this.find("step-on").addEventListener("click", () => this.stepBy(1));
    this.root.addEventListener("keydown", (event) => this.keyDown(event));
    new ResizeObserver(() => this.draw()).observe(this.root);
    const watch = new IntersectionObserver((entries) => {
      if (!entries.some((entry) => entry.isIntersecting)) return;
      watch.disconnect();
      this.seen = true;
      this.load();
    });
    watch.observe(this.root);
    onRecolour(() => this.draw());
  }

  private stepBy(count: number): void {
    const { lane, step } = this.cursor.pinned;
    const last = this.store.lanes[lane].rows.length - 1;
    this.cursor.move({ step: Math.max(Math.min(step + count, last), 0) });
  }

  private keyDown(event: KeyboardEvent): void {
    const layer = this.cursor.pinned.layer ?? 0;
    const last = (this.frame?.layers ?? 1) - 1;
    if (event.key === "Escape") this.cursor.release();
    else if (event.metaKey || (event.target as Element).matches("select, textarea")) return;
    else if (event.key === "[") this.cursor.move({ layer: Math.max(layer - 1, 0) });
    else if (event.key === "]") this.cursor.move({ layer: Math.min(layer + 1, last) });
    else return;
    event.preventDefault();
  }

  /** The cursor's step of the whole run, within the steps of a lane. */
  follow(name: LaneName): { step: number } {
    const { pinned } = this.cursor;
    const { lanes } = this.store;
    const step = pinned.step + lanes[pinned.lane].before - lanes[name].before;
    return { step: Math.max(Math.min(step, lanes[name].rows.length - 1), 0) };
  }

  /** The frame of the cursor's lane, once it is loaded. */
  get frame(): Frame | undefined {
    return this.frames[this.cursor.now.lane];
  }

  /** Open a view. */
  open(name: ViewName): void {
    this.name = name;
    this.seen = true;
    this.markTab();
    this.load();
    this.slices.supersede();
  }

  /** The choices of the open view that are not those it starts with, by the control's name. */
  get choices(): [string, string][] {
    return this.panels[this.name]?.changed() ?? [];
  }

  /** Set the controls of the open view, as far as it has such choices. */
  choose(choices: readonly (readonly [string, string])[]): void {
    this.panel().restore(choices);
  }

  private markTab(): void {
    this.tabs.choose(this.name);
    this.root.dataset.view = this.name;
  }

  private markEmpty(): void {
    const lanes = this.store.started.flatMap(({ name, start }) => {
      const frame = this.frames[name];
      return frame ? [{ frame, record: start.record, lacks: start.lacks }] : [];
    });
    this.tabs.mark(emptyViews(lanes));
  }

  /** Forget the data of the lanes `before`, and their pinned token unless the prompt is the same. */
  leave(before: Store["lanes"]): void {
    this.forget("", "");
    this.cursor.leave(before);
  }

  /** Forget the data if the run or its recording is another one. */
  refresh(version: string): void {
    const key = String(this.store.run) + "/" + version;
    if (key === this.key) return;
    this.forget(key, version);
    this.load();
  }

  /** Forget all data, also that of closed views. `key` and `version` are of what comes next. */
  private forget(key: string, version: string): void {
    this.key = key;
    this.frames = {};
    this.placed = false;
    this.documents.reset();
    this.slices.reset(this.store.run ?? "", version);
    for (const panel of [this.card, ...Object.values(this.panels)]) panel?.forget();
  }

  /** A document of a lane's timed run; `{missing: reason}` if it cannot be read. */
  fetch(lane: LaneName, name: string): Promise<Record<string, unknown>> {
    return this.documents.fetch(this.store.run ?? "", lane, name);
  }

  /** Load the documents of the open view, and draw. */
  load(): void {
    const { key } = this;
    const wanted = this.readable ? (VIEWS[this.name].documents ?? []) : [];
    for (const lane of this.store.started)
      for (const name of wanted)
        void this.fetch(lane.name, name).then(() => key === this.key && this.draw());
    this.draw();
  }

  /** Whether the documents of the open view are there. */
  private hasDocuments(): boolean {
    const wanted = VIEWS[this.name].documents ?? [];
    return this.store.started.every((lane) => wanted.every((name) => this.given(lane.name, name)));
  }

  /** Whether there is a run whose data can be read, and the inspector was on the screen. */
  private get readable(): boolean {
    return this.store.started.length > 0 && this.store.settled && this.seen;
  }

  /** Take the frames of all lanes once they are there, and go to the place to begin with. */
  private takeFrames(): void {
    if (!this.readable) return;
    const lanes = this.store.started.map((lane) => lane.name);
    const found = lanes.map((lane) => this.slices.get(lane, FRAME));
    if (!found.every((one) => one !== undefined)) return;
    lanes.forEach((lane, i) => {
      const frame = found[i];
      if (isMissing(frame)) return;
      const first = this.store.lanes[lane].before;
      this.frames[lane] ??= { ...documentOf<Omit<Frame, "first">>(frame), first };
    });
    if (this.placed || !Object.keys(this.frames).length) return;
    this.placed = true;
    this.settle(lanes);
    this.openRun();
  }

  private settle(lanes: LaneName[]): void {
    const { pinned } = this.cursor;
    if (!this.frames[pinned.lane]) this.cursor.settle({ lane: lanes[0] });
    this.cursor.enter(this.frames[pinned.lane] ?? { layers: 1, positions: Infinity });
  }

  /** Go to the telling step of a recorded example, unless the reader went somewhere before. */
  private openRun(): void {
    const { lanes } = this.store;
    if (lanes === this.opened || !this.frames.b || !this.atRest()) return;
    this.opened = lanes;
    this.cursor.move(this.home);
  }

  /** Where the inspector opens: in lane B, of a recorded example at its telling step. */
  get home(): Pick<Spot, "lane" | "step"> {
    const lane = this.frames.a && !this.frames.b ? "a" : "b";
    const frame = this.frames[lane];
    if (frame && this.opened === this.store.lanes) return { lane, step: tellingStep(frame) };
    return { lane, step: (frame?.steps ?? 1) - 1 };
  }

  /** A document of a lane, once it is loaded; it may be `Missing`. */
  given(lane: LaneName, source: string): Record<string, unknown> | undefined {
    return this.documents.given(lane, source);
  }

  /** A document of a lane as `Data`, once it is loaded and unless it is missing. */
  document<Data>(lane: LaneName, source: string): Data | null {
    const found = this.given(lane, source);
    return found && !isMissing(found) ? (found as Data) : null;
  }

  private moved(how: "hover" | "move"): void {
    if (how === "move") this.onMove(this.cursor.pinned);
    else this.draw();
  }

  private panel(): Panel {
    const { name } = this;
    const open = (this.panels[name] ??= new Panel(this.find("panel"), name, VIEWS[name], this));
    for (const panel of Object.values(this.panels)) panel.root.hidden = panel !== open;
    return open;
  }

  /** Why a lane of a run that is over has no frame, or no step in it; null while that is read. */
  lackOf(lane: LaneName): string | null {
    const { version, lanes, started } = this.store;
    if (!version) return "The run broke off, so it has no data to show.";
    if (this.frames[lane]) return "The run ended before the first step of this lane.";
    const own = lanes[lane].start ? lane : started[0].name; // a lane that was not run has no frame
    const found = this.readable && this.slices.get(own, FRAME);
    return found && isMissing(found) ? found.missing : null;
  }

  /** Why the open view cannot be drawn; empty if it can, null while the run's data is read. */
  private lack(view: View): string | null {
    const { frame, store } = this;
    const { lane } = this.cursor.now;
    if (store.state === "recording") return "Recording … " + recordingNews(store);
    if (store.live) return "The views open when the run ends.";
    if (!store.started.length) return "There is no run yet.";
    if (!frame?.steps) return this.lackOf(lane);
    const { foreign } = store.lanes[lane];
    if (frame.causal && view.causal) return view.causal;
    if (hasLevel(frame, view.level) && !(foreign && view.foreign)) return "";
    const lacks = levelWords(view, foreign, frame.causal);
    if (!canRecord(this) || lacks === CAUSAL) return lacks;
    return lacks + " Press Record above to run it again, without timing, with the recorder on.";
  }

  /** Draw the bar, the open view and the token card. */
  draw(): void {
    this.slices.begin();
    this.takeFrames();
    this.drawBar();
    const panel = this.panel();
    const drawn = this.drawView(panel) && panel.complete && this.hasDocuments();
    const told = this.drawCard();
    this.root.dataset.ready = drawn && told ? this.name : "";
    this.slices.end();
    this.markEmpty();
    for (const watcher of this.watchers) watcher();
  }

  /** Draw the open view, or say why it cannot be drawn; whether it was drawn. */
  private drawView(panel: Panel): boolean {
    const view = VIEWS[this.name];
    const lack = this.lack(view);
    if (lack) {
      panel.say(lack);
      return false;
    }
    if (lack === "" && view.without && this.frame?.lacks.includes(this.name)) {
      panel.say(view.without);
      return true;
    }
    const data = lack === null ? undefined : view.source && panel.slice(view.source);
    if (lack === null || (view.source && !data)) panel.await();
    else if (data && isMissing(data)) panel.say(data.missing);
    else {
      panel.draw(data && documentOf(data));
      return true;
    }
    return false;
  }

  /** Draw the card of the chosen token; false while its data is read. */
  private drawCard(): boolean {
    const node = this.find("card");
    const { position } = this.cursor.now;
    node.hidden = position === null || !this.frame?.steps || position >= this.frame.positions;
    if (node.hidden) return true;
    this.card ??= new Panel(node, "card", card, this);
    this.card.draw(undefined);
    return this.card.complete;
  }

  private drawBar(): void {
    const { now } = this.cursor;
    const { frame } = this;
    this.find("level").textContent = recordWords(this.store, this.frames, this.offline());
    for (const name of LANES) {
      const key = this.find<HTMLButtonElement>("lane-" + name);
      key.setAttribute("aria-pressed", String(now.lane === name));
      key.disabled = !this.store.lanes[name].start;
    }
    this.drawSlider("layer", frame?.layers ?? 0, now.layer ?? 0);
    this.drawSlider("step", frame?.steps ?? 0, now.step, frame?.first);
    this.find("where").textContent = this.where(now, frame);
    Object.assign(this.root.dataset, {
      lane: now.lane,
      step: now.step,
      layer: now.layer,
      position: now.position ?? "",
    });
  }

  private drawSlider(name: "layer" | "step", count: number, value: number, first = 0): void {
    const slider = this.find<HTMLInputElement>(name);
    const last = Math.max(count - 1, 0);
    Object.assign(slider, { max: last, disabled: !count, value: Math.min(value, last) });
    const shown = first + Math.min(value, last) + 1;
    const text = count ? `${shown} of ${first + count}` : "–";
    write(this.find(name + "-words"), text);
    slider.setAttribute("aria-valuetext", text);
  }

  private where(now: Readonly<Spot>, frame: Frame | undefined): string {
    const { position } = now;
    if (!frame || position === null)
      return "No token chosen. Point at a cell to see its token; a click or Enter pins it, Escape unpins it.";
    const place = position - frame.prompt + 1;
    const image = imagePlace(this.store.lanes[now.lane].images, position);
    const region = place < 1 ? (image ?? "prompt") : "answer token " + String(place);
    const text = this.tokenText(now.lane, position, now.step);
    return `Position ${position + 1} (${region}), ${text}${this.cursor.held ? ", pinned" : ""}`;
  }

  /** The text of a position before a step. */
  tokenText(name: LaneName, position: number | null, step: number): string {
    const frame = this.frames[name];
    if (!frame || position === null || position >= frame.positions) return "";
    if (imagePlace(this.store.lanes[name].images, position) !== null) return "a row of an image";
    const at = frame.revealed.values[position];
    const known =
      position < frame.prompt || frame.before.values[position] || (at >= 0 && at < step);
    return known ? quoted(this.store.lanes[name].pieces.get(frame.ids.values[position])) : "mask";
  }
}
