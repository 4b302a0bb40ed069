import { answering, type Component } from "../base/component.ts";
import { onRecolour, part, reachable, write } from "../base/dom.ts";
import { Focus, RACE_KEYS } from "../base/focus.ts";
import { readJson } from "../base/json.ts";
import { chosenSteps } from "../inspect/chosen_steps.ts";
import type { Spot } from "../inspect/cursor.ts";
import { Inspector } from "../inspect/inspector.ts";
import { serverSlices } from "../inspect/server_slices.ts";
import { installGlossary } from "../page/glossary.ts";
import { LONG_ANSWER } from "./blocks.ts";
import { CatchUp } from "./catch_up.ts";
import { RaceCharts } from "./charts.ts";
import { tendDropdowns } from "./dropdown.ts";
import { askQuestion, tellStanding } from "./events.ts";
import { FilmPanel } from "./film/panel.ts";
import { drawHead } from "./head.ts";
import { started } from "./lane.ts";
import { LaneView } from "./lane_view.ts";
import { LinkedView } from "./linked_view.ts";
import { LiveSteps } from "./live_steps.ts";
import { LANES, type LaneName, type News } from "./messages.ts";
import { drawNumbers } from "./numbers.ts";
import { Prompt } from "./prompt_and_answer.ts";
import { RaceAnnouncer } from "./race_announcer.ts";
import { headline, measuredWords, standingWords } from "./report.ts";
import { cardText } from "./run_card.ts";
import { Store, type Frames } from "./store.ts";
import { TokenCard, type Place } from "./token_card.ts";
import { describe, type GridEvents } from "./tokens.ts";
import { Transport } from "./transport.ts";

const NO_TOKEN =
  "Point at a token, or move to it with the arrow keys, to read its id, confidence and step.";

const CHARTS_MS = 100; // between two drawings of the charts while the replay plays

/** Two lanes with the replay bar, the charts and the inspector, as in the template `race.html`. */
export class Race {
  readonly store = new Store();
  readonly transport: Transport;
  readonly inspector: Inspector;
  private readonly root: HTMLElement;
  /** Whether it is the race of the Run tab, not that of a lesson. */
  private readonly main: boolean;
  private readonly lanes: Record<LaneName, LaneView>;
  private readonly charts: RaceCharts;
  private readonly prompt: Prompt;
  private readonly film: FilmPanel;
  private readonly focus: Focus;
  private readonly announcer: RaceAnnouncer;
  private readonly live: LiveSteps;
  private readonly catchUp: CatchUp;
  private readonly card: TokenCard;
  private pointed: Place | null = null;
  private queued = false;
  /** When the charts and the inspector were drawn, in milliseconds. */
  private drawnAt = 0;
  /** The run cards that were asked for. */
  private cards = 0;
  /** The question of the settings. */
  private question: string | null = null;

  constructor(private readonly component: Component) {
    this.root = part(component.element, ".ds");
    this.main = component.element.closest("#ds-race") !== null;
    this.transport = new Transport(this.root, this.store, () => this.move());
    this.inspector = new Inspector({
      root: part(this.root, "[data-inspect]"),
      store: this.store,
      ask: (run, lane, name) => component.server.view(run, lane, name),
      source: component.slices ?? serverSlices,
      onMove: (spot) => this.moveTo(spot),
      onBranch: (branch) => this.ask("branch", branch),
      onRecord: (wish) => this.ask("record", { run: this.store.run, ...wish }),
      align: () => this.transport.mode,
      atRest: () => this.main && this.store.state === "example" && this.transport.follow,
      offline: () => (component.props.offline ?? false) || this.store.foreign,
    });
    this.card = new TokenCard(this.inspector, ({ lane, place }) => {
      this.lanes[lane].grid.focus(place);
    });
    this.charts = new RaceCharts(this.root);
    this.prompt = new Prompt(this.find("prompt"));
    this.film = new FilmPanel({
      root: this.find("film"),
      store: this.store,
      align: () => this.transport.mode,
      frames: () => this.transport.frames(),
    });
    if (this.main) tendDropdowns();
    this.focus = new Focus(this.root, this.main ? RACE_KEYS : null);
    this.announcer = new RaceAnnouncer(this.find("spoken"), this.store, () =>
      headline(this.store, this.transport.frames()),
    );
    this.live = new LiveSteps({
      store: this.store,
      ask: (run, a, b) => component.server.news(run, a, b),
      take: (news) => this.drawNews(this.store.takeLanes(news)),
    });
    this.catchUp = new CatchUp({
      store: this.store,
      ask: (run) => component.server.replay(run),
      take: (news) => this.takeNews(news),
    });
    this.lanes = {
      a: new LaneView(this.root, "a", this.gridEvents("a"), (at) => this.pinRow("a", at)),
      b: new LaneView(this.root, "b", this.gridEvents("b"), (at) => this.pinRow("b", at)),
    };
    this.listen();
    this.listenToPage();
    if (this.main && !component.props.offline) new LinkedView(this.root, this.inspector);
    if (this.main) askQuestion();
    component.watch("value", () => void this.take(component.props.value));
    void this.take(component.props.value);
    this.draw();
  }

  private find<E extends HTMLElement = HTMLElement>(name: string): E {
    return part<E>(this.root, "[data-" + name + "]");
  }

  private recordKeys(): NodeListOf<HTMLButtonElement> {
    return this.root.querySelectorAll("[data-record]");
  }

  private listen(): void {
    for (const name of ["colour", "blocks"])
      this.find(name).addEventListener("change", () => this.draw());
    const field = this.find<HTMLInputElement>("probe-at");
    field.addEventListener("input", () => field.setCustomValidity(""));
    for (const key of this.recordKeys()) {
      key.addEventListener("click", () => this.record(key.dataset.record === "probe"));
    }
    this.find("back").addEventListener("click", () =>
      this.ask("branch", { back: this.store.parent }),
    );
    this.find("prompt-box").addEventListener("toggle", () => this.drawDetails());
    this.find("numbers").addEventListener("toggle", () => this.drawDetails());
    this.inspector.watchers.push(() => {
      this.drawTokenCard();
      this.focus.check();
    });
  }

  /** Record the run again; with a probe, at the steps that are written beside the key. */
  private record(probe: boolean): void {
    const field = this.find<HTMLInputElement>("probe-at");
    const chosen = chosenSteps(probe ? field.value : "");
    field.setCustomValidity("fault" in chosen ? chosen.fault : "");
    if ("fault" in chosen) field.reportValidity();
    else {
      const level = probe ? "probe" : "layers";
      this.ask("record", { run: this.store.run, level, probe_at: chosen.steps });
    }
  }

  private listenToPage(): void {
    document.addEventListener("click", ({ target }) => {
      const run = target instanceof Element && target.closest("#ds-run:not([disabled])");
      if (!this.main || !run) return;
      this.queued = true;
      this.hold(true);
    });
    document.addEventListener("driftscope-over", () => {
      this.queued = false;
      this.hold(false);
      if (this.main) void this.catchUp.end();
    });
    document.addEventListener("driftscope-import-over", () => {
      const other = this.store.held; // the keys are held for another run, which has its own end
      if (this.main && !other) void this.catchUp.end();
    });
    document.addEventListener("driftscope-question", ({ detail }) => {
      if (this.main) this.question = detail;
      this.drawHead();
    });
    const redraw = (): void => this.charts.draw(this.store, this.transport.frames());
    let width = 0;
    new ResizeObserver(([{ contentRect }]) => {
      if (contentRect.width !== width) redraw(); // the folding of blocks changes the height only
      width = contentRect.width;
      this.makeReachable();
    }).observe(this.root);
    onRecolour(redraw);
  }

  /** What the token grid of a lane does. Only what is read by keyboard is spoken. */
  private gridEvents(lane: LaneName): GridEvents {
    const speak = (aloud: boolean): void => {
      this.find("readout").ariaLive = aloud ? "polite" : "off";
    };
    return {
      point: (place, how) => {
        speak(how === "keys" && place !== null);
        this.pointed = place === null ? null : { lane, place };
        this.drawReadout();
      },
      pin: (place) => this.pin(lane, place),
      keys: speak,
    };
  }

  /** Pin a row of the prompt, as of an image. */
  private pinRow(lane: LaneName, position: number): void {
    this.inspector.cursor.move({ lane, position, ...this.inspector.follow(lane) }, true);
  }

  private pin(name: LaneName, place: number | null): void {
    const { pinned } = this;
    const same = pinned?.lane === name && pinned.place === place;
    const { start } = this.store.lanes[name];
    const { cursor } = this.inspector;
    if (place === null || same || !start) return cursor.release();
    const position = start.prompt.length + place;
    if (!this.store.live) this.card.open({ lane: name, place }, this.lanes[name].gridBox);
    cursor.move({ lane: name, position, ...this.inspector.follow(name) }, true);
  }

  private moveTo({ lane: name, step }: Readonly<Spot>): void {
    const lane = this.store.lanes[name];
    this.markPinned();
    const shown = this.transport.frames()[name] === step + 1;
    if (!lane.start || this.store.live || shown) return this.inspector.draw();
    this.transport.show(lane, step + 1);
  }

  /** The answer token at the cursor; null if there is none. */
  private get pinned(): Place | null {
    const { lane, position } = this.inspector.cursor.pinned;
    const { start } = this.store.lanes[lane];
    if (!start || position === null) return null;
    const place = position - start.prompt.length;
    return place >= 0 && place < start.length ? { lane, place } : null;
  }

  private markPinned(): void {
    const { pinned } = this;
    for (const name of LANES)
      this.lanes[name].grid.pin(pinned?.lane === name ? pinned.place : null);
    const { place } = this.card;
    if (pinned?.lane !== place?.lane || pinned?.place !== place?.place) this.card.close();
    this.drawReadout();
  }

  private drawTokenCard(): void {
    const { place } = this.card;
    if (!place) return;
    const cell = this.lanes[place.lane].grid.cell(place.place);
    this.card.draw(this.transport.frames()[place.lane], cell);
  }

  private drawReadout(): void {
    const target = this.pointed ?? this.pinned;
    const lane = target && this.store.lanes[target.lane];
    const told = lane && started(lane);
    const frames = this.transport.frames();
    this.find("readout").classList.toggle("ds-told", Boolean(target));
    const words = told && describe(lane, target.place, frames[target.lane]);
    write(this.find("readout"), words || NO_TOKEN);
  }

  private drawLane(name: LaneName, frames: Frames): void {
    const { lanes } = this.store;
    const other = name === "a" ? "b" : "a";
    this.lanes[name].draw({
      lane: lanes[name],
      frame: frames[name],
      other: lanes[other],
      otherFrame: frames[other],
      colour: this.find<HTMLSelectElement>("colour").value,
      folding: this.find<HTMLSelectElement>("blocks").value === "folded",
    });
    if (!lanes[name].start) return;
    const { dataset } = this.root;
    dataset["frame" + name.toUpperCase()] = String(frames[name]);
    dataset["shown" + name.toUpperCase()] = String(lanes[name].shown[frames[name]]);
  }

  private drawHead(): void {
    const { queued, question } = this;
    drawHead(this.root, this.store, this.transport.frames(), { queued, question });
  }

  private draw(): void {
    this.transport.refresh();
    const frames = this.transport.frames();
    this.drawnAt = performance.now();
    this.charts.draw(this.store, frames); // first: they read the layout, which the rest changes
    this.drawLanes(frames);
    this.drawInspector(frames);
    this.film.draw();
  }

  /** Draw another moment. While the replay plays, charts and inspector are not drawn every time. */
  private move(): void {
    const rested = performance.now() - this.drawnAt > CHARTS_MS;
    if (!this.transport.playing || rested) return this.draw();
    this.transport.refresh();
    this.drawLanes(this.transport.frames());
  }

  private drawLanes(frames: Frames): void {
    const long = this.store.started.some((lane) => lane.at.length > LONG_ANSWER);
    this.find("blocks-box").hidden = !long;
    this.drawHead();
    for (const name of LANES) this.drawLane(name, frames);
    this.markPinned();
  }

  private drawInspector(frames: Frames): void {
    const { store, inspector } = this;
    const { lane } = inspector.cursor.pinned;
    inspector.cursor.settle({ step: Math.max(frames[lane] - 1, 0) });
    for (const key of this.recordKeys()) key.disabled = store.busy || !store.recordable;
    if (store.settled && store.state !== "recording") inspector.refresh(store.version);
    inspector.draw();
    this.focus.check();
  }

  /** Draw numbers, prompt and run card; of a run that goes on, only the prompt is known. */
  private drawDetails(): void {
    this.makeReachable();
    drawNumbers(this.find("table"), this.store);
    this.find("env").textContent = measuredWords(this.store);
    if (this.find<HTMLDetailsElement>("prompt-box").open) this.prompt.draw(this.store);
    if (this.find<HTMLDetailsElement>("numbers").open) void this.drawCard();
  }

  private async drawCard(): Promise<void> {
    const turn = ++this.cards;
    const text = await cardText(this.inspector);
    if (turn === this.cards) this.find("run-card").textContent = text;
  }

  private makeReachable(): void {
    for (const box of this.root.querySelectorAll<HTMLElement>(".ds-answer, .ds-note"))
      reachable(box);
  }

  /** Hold the keys of the race until the server has done what was asked, or give them back. */
  private hold(held: boolean): void {
    this.store.held = this.main && held;
    this.drawHead();
    this.drawInspector(this.transport.frames());
  }

  private ask(name: string, wish: unknown): void {
    this.component.trigger(name, wish);
    this.hold(true);
  }

  /** Scroll the lanes up to the run's buttons if they are far below. */
  private comeToLanes(): void {
    if (part(this.root, ".ds-lanes").getBoundingClientRect().top < window.innerHeight * 0.4) return;
    const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
    const keys = document.querySelector("#ds-buttons");
    keys?.scrollIntoView({ block: "start", behavior: calm ? "auto" : "smooth" });
  }

  /** Take a message of the server: a JSON text. If steps are missing, ask for the whole race. */
  async take(text: string): Promise<void> {
    const news = readJson(text) as News | null;
    if (news) await this.takeNews(news);
  }

  private async takeNews(news: News): Promise<void> {
    this.queued = false;
    if (news.state === "starting") this.comeToLanes();
    const { lanes } = this.store;
    const whole = this.store.take(news);
    if (this.store.lanes !== lanes) this.forget(lanes);
    this.inspector.cursor.check(this.store.lanes);
    await this.drawNews(whole);
    const begins = LANES.some((name) => news.lanes[name]?.start);
    if (begins || !this.store.live) this.drawDetails();
    if (this.main && !this.component.props.offline) void this.live.follow();
  }

  /** Draw what came; `whole` is false if steps before it are missing. */
  private async drawNews(whole: boolean): Promise<void> {
    this.draw();
    this.announcer.announce();
    if (this.main) tellStanding(standingWords(this.store));
    if (!whole) await this.catchUp.complete();
  }

  private forget(before: Store["lanes"]): void {
    this.transport.reset();
    this.pointed = null;
    this.card.close();
    this.inspector.leave(before);
  }
}

/** Start a race in its component. */
export function race(component: Component): Race {
  installGlossary();
  return new Race(answering(component));
}
