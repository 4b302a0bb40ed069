import { copyOnPress } from "../base/clipboard.ts";
import { answering, type Component } from "../base/component.ts";
import { make, part, reachable, write } from "../base/dom.ts";
import { plural } from "../base/format.ts";
import { readJson } from "../base/json.ts";
import { visibleLines } from "../base/token_text.ts";
import { tellPlanned, tellQuestion } from "../race/events.ts";
import type { LaneName } from "../race/messages.ts";
import { EstimatePart, type Choices } from "./estimate.ts";
import { installGlossary, termNodes } from "./glossary.ts";

const NO_PROBLEM = "It is shown here once these settings can be run.";
/** Milliseconds: a link, a preset or another model changes many settings at once. */
const GATHERING = 50;

/** The plan of a lane in words. */
interface PlanRow {
  lane: LaneName;
  title: string;
  plan: string;
  context: string;
}

/** The plan of a race (`inspector.handlers.page_handlers`), or why it cannot be run. */
type PlanDocument =
  | { ok: false; error: string; query?: string }
  | {
      ok: true;
      lanes: PlanRow[];
      memory: string;
      ends: string;
      question: string;
      /** The number of worked examples before the question. */
      before: number;
      /** The query of the link to these settings. */
      query: string;
      estimates: Choices;
    };

/** How many worked examples precede the question; empty for none. */
function beforeWords(count: number): string {
  if (!count) return "";
  return `after ${plural(count, "worked example")}`;
}

function planRow(row: PlanRow, seen: Set<string>): HTMLElement {
  const out = make("p", "ds-plan-row");
  const text = make("span");
  text.append(...termNodes(row.plan, seen));
  out.append(
    make("span", "ds-badge ds-badge-" + row.lane, row.lane.toUpperCase()),
    make("strong", "", row.title),
    text,
  );
  return out;
}

/** The problem, the plan of both lanes, and the link to the settings. */
export class Plan {
  /** Null until the first plan is there. */
  private question: string | null = null;
  /** Whether the settings can be run; null until the first plan is there. */
  private runnable: boolean | null = null;
  private readonly field: HTMLInputElement;
  private readonly estimate: EstimatePart;
  private gathering = false;

  constructor(private readonly component: Component) {
    this.field = this.find("#ds-link-field");
    this.estimate = new EstimatePart(component);
    copyOnPress(this.find("[data-copy]"), this.field);
    document.addEventListener("driftscope-standing", ({ detail }) => {
      this.find("[data-standing]").textContent = detail;
      this.find("[data-standing]").hidden = !detail;
    });
    document.addEventListener("driftscope-asking", () => {
      if (this.question !== null) tellQuestion(this.question);
      if (this.runnable !== null) tellPlanned(this.runnable);
    });
    document.addEventListener("driftscope-changed", () => this.gather());
    const question = this.find("[data-question]");
    new ResizeObserver(() => reachable(question)).observe(question); // also when its tab opens
    this.find("[data-dice]").addEventListener("click", () => component.trigger("click"));
    component.watch("value", () => this.show());
    this.show();
  }

  private find<E extends HTMLElement>(selector: string): E {
    return part<E>(this.component.element, selector);
  }

  /** Have the settings read once for all changes of the next moment. */
  private gather(): void {
    if (this.gathering) return;
    this.gathering = true;
    setTimeout(() => {
      this.gathering = false;
      this.component.trigger("changed");
    }, GATHERING);
  }

  private show(): void {
    const plan = readJson(this.component.props.value) as PlanDocument | null;
    if (!plan) return;
    this.runnable = plan.ok;
    tellPlanned(plan.ok);
    const refusal = this.find("[data-error]");
    refusal.hidden = plan.ok;
    write(refusal, plan.ok ? "" : "Cannot run. " + plan.error);
    this.find("[data-plans]").hidden = !plan.ok;
    this.find<HTMLButtonElement>("[data-copy]").disabled = !plan.ok;
    if (!plan.ok) {
      this.field.value = "";
      this.estimate.clear();
      if (this.question === null) this.find("[data-question]").textContent = NO_PROBLEM;
      return;
    }
    const seen = new Set<string>();
    const rows = plan.lanes.map((row) => planRow(row, seen));
    const notes = [plan.lanes[0].context, plan.ends, plan.memory].filter(Boolean);
    const small = notes.map((text) => make("p", "ds-room", text));
    this.find("[data-plans]").replaceChildren(...rows, ...small);
    this.find("[data-question]").textContent = visibleLines(plan.question);
    reachable(this.find("[data-question]"));
    this.find("[data-before]").textContent = beforeWords(plan.before);
    this.field.value = `${location.origin}${location.pathname}?${plan.query}`;
    this.estimate.take(plan.query, plan.estimates);
    this.question = plan.question;
    tellQuestion(plan.question);
  }
}

/** Start the plan in its component. */
export function plan(component: Component): Plan {
  installGlossary();
  return new Plan(answering(component));
}
