import { Announcer, taskNews } from "../base/announcer.ts";
import { answering, type Component } from "../base/component.ts";
import { csv, save } from "../base/download.ts";
import { onRecolour, part, reachable, write } from "../base/dom.ts";
import { Focus, redrawInPlace, taskKeys } from "../base/focus.ts";
import { readJson } from "../base/json.ts";
import { browserStorage, keep } from "../base/storage.ts";
import { Throttle } from "../base/throttle.ts";
import { Figure } from "../figures/figure.ts";
import { QUANTITY_OPTIONS } from "../inspect/quantities.ts";
import { agreementFigure, aggregateFigures, type Choice } from "./figures.ts";
import {
  byPrompt,
  isOver,
  type Aggregate,
  type BatchProgress,
  type Row,
  type Setting,
} from "./messages.ts";
import { promptTable, runRows, settingRows, settingTable } from "./tables.ts";
import { stateWords } from "./words.ts";

const PAGE = 25; // prompts of a page of the table
const STORAGE_KEY = "driftscope-batch"; // of the session: the batch that is shown
const REFRESH_MS = 1000;
const NO_ANSWER = "The server did not answer, so that results may be missing. Load the page again.";

interface Recordings {
  level: string;
  settings: Aggregate[];
}

/** The results of many prompts: progress, figures by setting, aggregates and a table by prompt. */
export class Batch {
  private readonly root: HTMLElement;
  private readonly focus: Focus;
  private readonly announcer: Announcer;
  private progress: BatchProgress | null = null;
  private settings: Setting[] = [];
  private rows: Row[] = [];
  private recordings: Recordings | null = null;
  private asking = false;
  private askAgain = false; // whether a message came after the last question
  private readonly tables = new Throttle(() => this.drawTables(), REFRESH_MS);
  private page = 0;
  private readonly choice: Choice = { quantity: "v", part: 1, layer: 0 };
  private setting = 0;
  private readonly agreement = new Figure("batch-agreement", () => this.about());
  private readonly figures = new Map<string, Figure>();

  constructor(private readonly component: Component) {
    this.root = part(component.element, "[data-batch]");
    this.focus = new Focus(this.root, taskKeys("batch"));
    this.announcer = new Announcer(this.find("spoken"), () =>
      taskNews(this.progress?.state ?? "", () => this.find("state").textContent),
    );
    this.find("agreement").append(this.agreement.root);
    this.fillChoices();
    for (const [name, write_] of Object.entries(this.files()))
      part(this.root, `[data-batch-save="${name}"]`).addEventListener("click", write_);
    this.find("earlier").addEventListener("click", () => this.turn(-1));
    this.find("later").addEventListener("click", () => this.turn(1));
    onRecolour(() => this.drawFigures());
    new ResizeObserver(() => {
      this.drawFigures();
      this.makeReachable();
    }).observe(this.root);
    component.watch("value", () => this.take());
    this.take();
  }

  private find<E extends HTMLElement = HTMLElement>(name: string): E {
    return part<E>(this.root, `[data-batch-${name}]`);
  }

  private about(): { run: string } {
    return { run: this.progress?.batch ?? "" };
  }

  /** Take a message: progress is shown at once, and runs that are new are asked for. */
  private take(): void {
    const progress = readJson(this.component.props.value) as BatchProgress | null;
    if (!progress) return;
    if (progress.batch && progress.batch !== this.progress?.batch) this.forget();
    else if (isOver(progress.state) && !isOver(this.progress?.state ?? "")) this.forgetFailed();
    this.progress = progress;
    this.settings = progress.settings ?? this.settings;
    if (progress.batch) keep(browserStorage("sessionStorage"), STORAGE_KEY, progress.batch);
    this.showProgress();
    if (progress.settings) this.showSettings();
    void this.ask();
  }

  /** Ask again for the runs from the first failed one on: a continuation may have repeated it. */
  private forgetFailed(): void {
    const failed = this.rows.findIndex(({ reason }) => reason !== "done");
    if (failed >= 0) this.rows.length = failed;
  }

  private forget(): void {
    this.rows = [];
    this.settings = [];
    this.recordings = null;
    this.page = 0;
    this.choice.layer = 0;
    for (const figure of this.figures.values()) figure.root.remove();
    this.figures.clear();
    this.drawAggregates();
    this.drawTables(); // a key of the old table would race a prompt of the new batch
  }

  private showProgress(): void {
    const { progress } = this;
    if (!progress) return;
    this.root.dataset.state = progress.state;
    this.root.dataset.done = String(progress.done);
    write(this.find("state"), stateWords(progress));
    this.announcer.announce();
    const bar = this.find<HTMLProgressElement>("bar");
    bar.hidden = !progress.total;
    bar.max = Math.max(progress.total, 1);
    bar.value = progress.done;
  }

  private showSettings(): void {
    this.find("results").hidden = !this.progress?.done;
    this.find("settings").replaceChildren(settingTable(this.settings));
    this.makeReachable();
    const problems = this.settings
      .filter(({ recording_problem: problem }) => problem)
      .map(({ name, recording_problem: problem }) => `${name}: not recorded (${problem}).`);
    write(this.find("problems"), problems.join(" "));
  }

  /** What scrolls is reachable by keyboard; that depends on the width. */
  private makeReachable(): void {
    const texts = this.root.querySelectorAll<HTMLElement>(".ds-batch-text");
    for (const box of [this.find("settings"), this.find("prompts"), ...texts]) reachable(box);
  }

  /** Ask for the runs that are new, some at a time, and then for the aggregates. */
  private async ask(): Promise<void> {
    this.askAgain = true;
    if (this.asking) return;
    this.asking = true;
    try {
      while (this.askAgain) {
        this.askAgain = false;
        await this.askOnce();
      }
    } catch {
      write(this.find("problems"), NO_ANSWER);
    } finally {
      this.asking = false;
    }
    if (isOver(this.progress?.state ?? "")) this.tables.now();
  }

  private async askOnce(): Promise<void> {
    while (this.progress?.batch && this.rows.length < this.progress.done) {
      const { batch } = this.progress;
      const { length } = this.rows;
      const answer = await this.component.server.rows([batch, length]);
      const found = JSON.parse(answer) as { rows?: Row[] };
      if (!found.rows?.length) break;
      const next = this.progress.batch === batch && this.rows.length === length;
      if (next) this.rows.push(...found.rows); // else they were forgotten meanwhile
      this.tables.ask();
    }
    await this.askAggregates();
  }

  private async askAggregates(): Promise<void> {
    const { progress, settings } = this;
    const recorded = settings.reduce((sum, row) => sum + row.recorded, 0);
    const known = this.recordings?.settings.reduce((sum, row) => sum + row.runs, 0) ?? 0;
    if (!progress?.batch || recorded === known) return;
    const found = JSON.parse(
      await this.component.server.aggregates([progress.batch, 0]),
    ) as Recordings;
    if (!Array.isArray(found.settings) || this.progress?.batch !== progress.batch) return;
    this.recordings = found;
    this.drawAggregates();
  }

  private drawTables(): void {
    const prompts = byPrompt(this.rows);
    const pages = Math.max(Math.ceil(prompts.length / PAGE), 1);
    this.page = Math.min(this.page, pages - 1);
    const here = prompts.slice(this.page * PAGE, (this.page + 1) * PAGE);
    const box = this.find("prompts");
    redrawInPlace(box, "data-batch-place", () => {
      box.replaceChildren(promptTable(here, this.settings, (run) => this.open(run)));
      this.makeReachable();
    });
    this.find("pages").hidden = pages === 1;
    write(this.find("page"), `Page ${this.page + 1} of ${pages}`);
    this.find<HTMLButtonElement>("earlier").disabled = this.page === 0;
    this.find<HTMLButtonElement>("later").disabled = this.page === pages - 1;
    this.focus.check();
    this.drawAgreement();
  }

  private drawAgreement(): void {
    const spec = agreementFigure(this.rows, this.settings);
    this.find("agreement").hidden = !spec;
    if (spec) this.agreement.show(spec);
  }

  private drawFigures(): void {
    if (!this.root.clientWidth) return;
    this.drawAgreement();
    this.drawAggregates();
  }

  private drawAggregates(): void {
    const { recordings } = this;
    const shown = recordings?.settings.some(({ runs }) => runs) ?? false;
    this.find("aggregates").hidden = !shown;
    if (!recordings || !shown) return;
    this.fillSettings(recordings.settings);
    const data = recordings.settings[this.setting];
    this.choice.layer = Math.min(this.choice.layer, Math.max(data.layers - 1, 0));
    const specs = aggregateFigures(data, this.choice, (layer) => {
      this.choice.layer = layer;
      this.drawAggregates();
    });
    const box = this.find("figures");
    for (const [name, spec] of specs) {
      const figure = this.figures.get(name) ?? new Figure(name, () => this.about());
      this.figures.set(name, figure);
      if (!figure.root.parentElement) box.append(figure.root);
      figure.root.hidden = false;
      figure.show(spec);
    }
    const names = new Set(specs.map(([name]) => name));
    for (const [name, figure] of this.figures) figure.root.hidden = !names.has(name);
    write(this.find("none"), specs.length ? "" : "No run of this setting was recorded yet.");
  }

  private fillSettings(settings: readonly Aggregate[]): void {
    const chooser = this.find<HTMLSelectElement>("of");
    this.setting = Math.min(this.setting, settings.length - 1);
    const shown = Array.from(chooser.options, ({ text }) => text);
    if (shown.join("\n") === settings.map(({ name }) => name).join("\n")) return;
    chooser.replaceChildren(...settings.map(({ name }, i) => new Option(name, String(i))));
    this.setting = settings.length - 1;
    chooser.value = String(this.setting);
  }

  private fillChoices(): void {
    const quantity = this.find<HTMLSelectElement>("quantity");
    quantity.append(...QUANTITY_OPTIONS.map(([name, label]) => new Option(label, name)));
    quantity.value = this.choice.quantity;
    const rows = this.find<HTMLSelectElement>("part");
    rows.append(new Option("prompt", "0"), new Option("answer", "1"));
    rows.value = String(this.choice.part);
    const of = this.find<HTMLSelectElement>("of");
    for (const [chooser, take] of [
      [quantity, () => (this.choice.quantity = quantity.value)],
      [rows, () => (this.choice.part = Number(rows.value))],
      [of, () => (this.setting = Number(of.value))],
    ] as const)
      chooser.addEventListener("change", () => {
        take();
        this.drawAggregates();
      });
  }

  private turn(by: number): void {
    this.page += by;
    this.tables.now();
  }

  private open({ prompt, setting }: Row): void {
    this.focus.toRaceOnceHidden();
    this.component.trigger("race", { batch: this.progress?.batch, prompt, setting });
  }

  /** What each button of the files saves. */
  private files(): Record<string, () => void> {
    const name = (what: string, ending: string): string =>
      `driftscope-batch-${(this.progress?.batch ?? "").slice(0, 8)}-${what}.${ending}`;
    const table = (what: string, rows: Parameters<typeof csv>[0]): void =>
      save(name(what, "csv"), new Blob([csv(rows)], { type: "text/csv" }));
    const json = (what: string, data: unknown): void =>
      save(name(what, "json"), new Blob([JSON.stringify(data)], { type: "application/json" }));
    return {
      settings: () => table("settings", settingRows(this.settings)),
      runs: () => table("runs", runRows(this.rows, this.settings)),
      results: () =>
        json("results", { ...this.progress, settings: this.settings, runs: this.rows }),
      aggregates: () => json("aggregates", this.recordings),
    };
  }
}

/** Start the results of many prompts in their component. */
export function batch(component: Component): Batch {
  return new Batch(answering(component));
}
