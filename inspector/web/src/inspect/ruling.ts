import { chance } from "../base/format.ts";
import { quoted } from "../base/token_text.ts";
import { at } from "./arrays.ts";
import { NO_DATA } from "./codes.ts";
import type { Guided, GuidedStep, Verdict, VerdictCode } from "./guided.ts";
import type { Frame } from "./view.ts";

const RANKS = ["first", "second", "third", "fourth", "fifth"];

/** What became of a drafted token. */
const OUTCOMES: Record<Verdict, string> = {
  accepted: "Accepted",
  agreed: "Not committed in this step",
  refused: "Not accepted",
  mismatch: "Not accepted, the first mismatch",
  fallback: "Committed by the fallback",
  stop: "Accepted: the end of the text",
  filled: "Filled in after the end of the text",
  untold: "Its verdict was not recorded",
};

/** What is known of a token without a recorded verdict. */
const UNRECORDED: Partial<Record<Verdict, string>> = {
  accepted: "accepted and committed",
  mismatch: "the first token that the guider did not accept",
  fallback: "committed by the fallback, because no token was accepted",
  stop: "the end of the text was committed, and the run ended",
  filled: "filled in after the end of the text",
  untold: "drafted after the first mismatch; its verdict was not recorded",
};
const END = "the end of the text";

/** A token of the guider, judged. */
interface Judged {
  id: number;
  p: number;
  /** Whether the rule accepts it. */
  ok: boolean;
  /** Its rank, from 0, among the guider's choices. */
  rank: number;
  /** The guider's first choice, and its probability. */
  top: number;
  best: number;
}

function rankWords(rank: number): string {
  return rank >= 0 && rank < RANKS.length ? RANKS[rank] : "sixth or lower";
}

/** Whether a position is known before a step: given, or committed by an earlier step. */
export function knownBefore(frame: Frame, position: number, step: number): boolean {
  const revealed = frame.revealed.values[position];
  return frame.before.values[position] === 1 || (revealed >= 0 && revealed < step);
}

/** What the verdicts of a run refer to. */
export interface RulingFacts {
  about: Guided;
  frame: Frame;
  code: VerdictCode;
  /** The ids of the diffusion model's tokens that end a text. */
  stops: readonly number[];
}

/** The guider's verdict on one position in one step, in words. */
export class Ruling {
  /** The answer token, from 0; negative in the prompt. */
  private readonly place: number;
  /** Null if the token was not drafted. */
  private readonly verdict: Verdict | null;
  /** The row of the recorded draft; -1 if there is none. */
  private readonly row: number;

  private readonly about: Guided;
  private readonly frame: Frame;
  private readonly code: VerdictCode;
  private readonly stops: readonly number[];

  /** `data` is of the step; words in its place while it is read, or if it is missing. */
  constructor(
    { about, frame, code, stops }: RulingFacts,
    private readonly data: GuidedStep | string,
    private readonly step: number,
    private readonly position: number,
  ) {
    this.about = about;
    this.frame = frame;
    this.code = code;
    this.stops = stops;
    this.place = position - frame.prompt;
    const verdict = this.place < 0 ? NO_DATA : code(step, this.place);
    this.verdict = verdict < about.names.length ? about.names[verdict] : null;
    this.row = typeof data === "string" ? -1 : data.draft_position.values.indexOf(position);
  }

  /** The whole sentence: both probabilities, the verdict and its reason. */
  sentence(): string {
    if (this.place < 0) return "The prompt is not drafted: choose an answer token.";
    const { data } = this;
    if (typeof data === "string") return this.head + data;
    if (this.row < 0) return this.head + this.unrecorded();
    return this.head + this.probabilities(data) + " " + this.ending(data);
  }

  /** Both probabilities and the outcome. */
  short(): string {
    const { data } = this;
    if (typeof data === "string") return this.head + data;
    if (this.row < 0) return this.head + this.unrecorded();
    const p = data.draft_p_g.values[this.row];
    const guider = Number.isNaN(p) ? "unknown" : chance(p);
    const words = `${this.drafted(data)}, diffusion model ${this.ownChance(data)}, guider ${guider}: `;
    return this.head + words + this.outcome.toLowerCase();
  }

  private get head(): string {
    return `Step ${this.frame.first + this.step + 1}, answer token ${this.place + 1}: `;
  }

  /** Whether the fallback committed the end of the text. */
  private get forced(): boolean {
    return this.verdict === "stop" && this.about.accepted.values[this.step] === 0;
  }

  private get outcome(): string {
    if (this.forced) return "Committed by the fallback, and it ends the text";
    return this.verdict === null ? "Not drafted" : OUTCOMES[this.verdict];
  }

  private unrecorded(): string {
    const said = this.verdict === null ? undefined : UNRECORDED[this.verdict];
    if (said) return said + ".";
    if (!knownBefore(this.frame, this.position, this.step)) return "not drafted in this step.";
    return "known before this step, so it was not drafted.";
  }

  private drafted({ draft_id, pieces }: GuidedStep): string {
    const id = draft_id.values[this.row];
    return this.stops.includes(id) ? END : quoted(pieces[id]);
  }

  /** The diffusion model's probability. */
  private ownChance({ draft_p_f }: GuidedStep): string {
    return chance(draft_p_f.values[this.row]);
  }

  /** A token of the guider; one without a text ends the text. */
  private guiderToken({ guider_pieces }: GuidedStep, id: number): string {
    const piece = guider_pieces[id];
    return piece === undefined ? END : quoted(piece);
  }

  /** The guider's tokens that spell the drafted one; none if they do not reach it. */
  private tokens(data: GuidedStep): Judged[] {
    const { row } = this;
    const [first, last] = [at(data.span, row, 0), at(data.span, row, 1)];
    if (first < 0) return [];
    return Array.from({ length: last - first + 1 }, (_, i) => ({
      id: data.guider_id.values[first + i],
      p: data.guider_p.values[first + i],
      ok: data.guider_ok.values[first + i] === 1,
      rank: data.guider_rank.values[first + i],
      top: data.guider_top.values[first + i],
      best: data.guider_top_p.values[first + i],
    }));
  }

  private probabilities(data: GuidedStep): string {
    const tokens = this.tokens(data);
    const draft = `the diffusion model drafts ${this.drafted(data)} with probability ${this.ownChance(data)}`;
    if (!tokens.length)
      return draft + "; the guider's tokens do not reach it, so it was not checked.";
    const each = tokens.map(({ id, p }) => this.guiderToken(data, id) + " " + chance(p)).join(", ");
    const own = this.about.about.shared ? "" : ` In the guider's tokens it is ${each}.`;
    return draft + "; " + this.guess(data, tokens) + "." + own;
  }

  /** What the guider gives the token, and its own choice. */
  private guess(data: GuidedStep, tokens: readonly Judged[]): string {
    const one = decisive(tokens);
    const whole = data.draft_p_g.values[this.row];
    const gives = Number.isNaN(whole) ? "" : "the guider gives it " + chance(whole);
    const part = tokens.length > 1 ? ", of which " + this.guiderToken(data, one.id) : "";
    if (one.rank === 0) {
      const said = (gives || "the guider") + part;
      return said + (part || !gives ? " is its first choice" : ", its first choice");
    }
    const rank = (part ? " is its " : ", its ") + rankWords(one.rank);
    const other = this.guiderToken(data, one.top);
    return gives + part + `${rank} choice after ${other} with ${chance(one.best)}`;
  }

  private ending(data: GuidedStep): string {
    const tokens = this.tokens(data);
    if (!tokens.length) return "";
    const ok = data.draft_ok.values[this.row] === 1;
    return this.outcome + ": " + this.reason(decisive(tokens), ok) + this.after() + ".";
  }

  /** How the rule judges a token of the guider; `whole` is its verdict on the drafted token. */
  private reason({ p, ok, rank, best }: Judged, whole: boolean): string {
    const { rule, k, tau } = this.about.rule;
    if (ok !== whole) return "the guider does not accept all of its tokens that spell it";
    const not = ok ? "" : "not ";
    const share = `${tau} × its highest, ${chance(best)}`;
    if (rule === "rel_dlm")
      return `the diffusion model's highest probability is ${not}more than ${share} (rule rel_dlm, τ = ${tau})`;
    if (rule === "top1") return `it is ${not}the guider's first choice (rule top1)`;
    const likely = k === 1 ? "the first choice" : `one of its ${k} first choices`;
    if (rule === "topk") return `it is ${not}${likely} (rule topk, k = ${k})`;
    const name = ` (rule rel, k = ${k}, τ = ${tau})`;
    if (ok) return `it is ${likely}, and ${chance(p)} is at least ${share}${name}`;
    const far = rank >= k || p >= tau * best;
    return (far ? "it is not " + likely : `${chance(p)} is less than ${share}`) + name;
  }

  /** What followed from the other tokens of the step. */
  private after(): string {
    const { verdict, forced } = this;
    if (verdict === "fallback" || forced) {
      const { fallback } = this.about.rule;
      const whose = fallback === "ar" ? "the guider's" : "the diffusion model's";
      return `; because no token was accepted, ${whose} token was committed there (fallback ${fallback})`;
    }
    if (verdict !== "agreed" && verdict !== "refused") return "";
    const first = this.firstMismatch();
    const where = first < 0 ? "" : `, answer token ${first + 1}`;
    if (verdict === "refused") return `; an earlier token${where}, was the first mismatch`;
    if (first < 0) return "; it is beyond the number of tokens that a step may accept";
    return `; but an earlier token${where}, was the first mismatch`;
  }

  /** The first answer token of the step that the guider did not accept; -1 if there is none. */
  private firstMismatch(): number {
    const { names } = this.about;
    for (let x = 0; x < this.frame.positions - this.frame.prompt; x++) {
      const code = this.code(this.step, x);
      if (code < names.length && ["mismatch", "fallback"].includes(names[code])) return x;
    }
    return -1;
  }
}

/** The token that decides: the first that is not accepted, or the first of all. */
function decisive(tokens: readonly Judged[]): Judged {
  return tokens.find(({ ok }) => !ok) ?? tokens[0];
}
