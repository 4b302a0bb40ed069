import type { Component } from "../base/component.ts";
import { make, onRecolour, part } from "../base/dom.ts";
import { textRow } from "../base/table.ts";
import { drawBars, drawZone, theoremInks } from "./theorem_plots.ts";
import { handScene, mass, sceneFor, SHOWN, type Outcome, type Scene } from "./theorem_model.ts";
import { barsName, facts, story, verdict, zoneName } from "./theorem_words.ts";

const SLIDERS = { k: 0, epsilon: 2, strength: 2 } as const; // decimal places
type Slider = keyof typeof SLIDERS;

/** The widget on when parallel decoding is safe. */
export class Theorem {
  private readonly stage: HTMLElement;
  /** Whether the example of the poker hands is shown. */
  private example = false;
  private scene: Scene;

  constructor(element: HTMLElement) {
    this.stage = part(element, "[data-theorem]");
    this.scene = this.current();
    this.on("inside", () => this.toEdge(0));
    this.on("outside", () => this.toEdge(1));
    this.on("house", () => (this.example = !this.example));
    for (const name of ["k", "epsilon", "strength"] as const) {
      this.slider(name).addEventListener("input", () => {
        this.example = false;
        this.refresh();
      });
    }
    new ResizeObserver(() => this.draw()).observe(this.stage);
    onRecolour(() => this.draw());
    this.refresh();
  }

  private part(name: string): HTMLElement {
    return part(this.stage, `[data-${name}]`);
  }

  private slider(name: Slider): HTMLInputElement {
    return part<HTMLInputElement>(this.stage, `[data-in-${name}]`);
  }

  private on(key: string, act: () => void): void {
    this.part("key=" + key).addEventListener("click", () => {
      act();
      this.refresh();
    });
  }

  /** Set the sliders to ε at the edge of the theorem for this k, or so many hundredths past it. */
  private toEdge(past: number): void {
    this.example = false;
    const k = Number(this.slider("k").value);
    this.slider("epsilon").value = String((Math.floor(100 / (k + 1)) + past) / 100);
    this.slider("strength").value = "1";
  }

  private current(): Scene {
    if (this.example) return handScene();
    const hundredths = Math.round(Number(this.slider("epsilon").value) * 100);
    const [k, strength] = [this.slider("k"), this.slider("strength")];
    return sceneFor(Number(k.value), hundredths, Number(strength.value));
  }

  private refresh(): void {
    this.scene = this.current();
    this.write();
    this.draw();
  }

  private write(): void {
    const { scene } = this;
    for (const name of ["k", "epsilon", "strength"] as const) {
      const text = Number(this.slider(name).value).toFixed(SLIDERS[name]);
      this.part("out-" + name).textContent = this.example ? "–" : text;
    }
    this.part("key=house").setAttribute("aria-pressed", String(this.example));
    this.part("verdict").textContent = verdict(scene);
    this.part("story").textContent = story(scene);
    this.writeCounts(scene);
    const pairs = facts(scene).map(([name, text]) => {
      const pair = make("div");
      pair.append(make("dt", "", name), make("dd", "", text));
      return pair;
    });
    this.part("facts").replaceChildren(...pairs);
    this.part("rows").replaceChildren(...scene.rows.map(tableRow));
    this.part("bars").setAttribute("aria-label", barsName(scene));
    this.part("zone").setAttribute("aria-label", zoneName(scene));
    this.publish(scene);
  }

  private writeCounts({ rows, listed }: Scene): void {
    const rest = rows.filter((row) => !listed.includes(row));
    const some = `${SHOWN} of ${rows.length} outcomes, the largest`;
    this.part("bars-title").textContent = rest.length ? some : `All ${rows.length} outcomes`;
    const sums = `P ${mass(rest).toFixed(3)}, Q ${mass(rest, "q").toFixed(3)}.`;
    this.part("rest").textContent = rest.length ? `The other ${rest.length} together: ${sums}` : "";
  }

  /** State what is shown in attributes of the widget. */
  private publish(scene: Scene): void {
    const join = (rows: readonly Outcome[]): string => rows.map((row) => row.name).join("|");
    const words = (flag: boolean): string => (flag ? "yes" : "no");
    Object.assign(this.stage.dataset, {
      k: scene.k,
      epsilon: scene.epsilon,
      dependency: scene.strength ?? "",
      example: this.example ? "house" : "",
      pArgmax: join(scene.bestP),
      qArgmax: join(scene.bestQ),
      sequential: scene.chain.name,
      parallel: scene.once.name,
      same: words(scene.same),
      guaranteed: words(scene.safe),
      tv: scene.tv,
      tvBound: scene.bound,
    });
  }

  private draw(): void {
    if (!this.stage.clientWidth) return;
    const inks = theoremInks(this.stage);
    drawBars(part<SVGSVGElement>(this.stage, "[data-bars]"), this.scene, inks);
    drawZone(part<SVGSVGElement>(this.stage, "[data-zone]"), this.scene, inks);
  }
}

function tableRow({ name, p, q }: Outcome): HTMLTableRowElement {
  const row = textRow([name, p.toFixed(4), q.toFixed(4)]);
  Object.assign(row.dataset, { outcome: name, p, q });
  return row;
}

/** Start the widget in its template. */
export function theorem(component: Component): void {
  new Theorem(component.element);
}
