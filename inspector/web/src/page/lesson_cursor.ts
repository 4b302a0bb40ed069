import { make, write } from "../base/dom.ts";
import type { Inspector } from "../inspect/inspector.ts";

/** The two coordinates of the cursor that a lesson has controls for. */
type Name = "step" | "layer";

/** A slider with a key for one less and one for one more. */
interface Control {
  slider: HTMLInputElement;
  words: HTMLOutputElement;
  keys: HTMLButtonElement[];
}

/** Step and layer of the inspector's cursor, as controls inside the text of a lesson. */
export class LessonCursor {
  private readonly controls: Record<Name, Control>;

  constructor(
    root: HTMLElement,
    private readonly inspector: Inspector,
  ) {
    this.controls = { step: this.build(root, "step"), layer: this.build(root, "layer") };
  }

  private build(root: HTMLElement, name: Name): Control {
    const title = name === "step" ? "Step" : "Layer";
    const slider = make("input");
    Object.assign(slider, { type: "range", min: "0", max: "0", step: "1", ariaLabel: title });
    slider.dataset["lesson" + title] = "";
    slider.addEventListener("input", () => this.move(name, +slider.value));
    const words = make("output");
    words.ariaLive = "off";
    const keys = [-1, 1].map((by) => {
      const key = make("button", "ds-pick", by < 0 ? "−" : "+");
      key.type = "button";
      key.ariaLabel = by < 0 ? `Previous ${name}` : `Next ${name}`;
      key.addEventListener("click", () => this.move(name, +slider.value + by));
      return key;
    });
    const group = make("span", "ds-lesson-control");
    group.append(make("span", "", title), keys[0], slider, keys[1], words);
    root.append(group);
    return { slider, words, keys };
  }

  private move(name: Name, value: number): void {
    this.inspector.cursor.move({ [name]: value });
  }

  /** Show the cursor; without a run the controls are disabled. */
  draw(): void {
    const { frame, cursor } = this.inspector;
    this.drawControl("step", frame?.steps ?? 0, cursor.pinned.step);
    this.drawControl("layer", frame?.layers ?? 0, cursor.pinned.layer ?? 0);
  }

  private drawControl(name: Name, count: number, value: number): void {
    const { slider, words, keys } = this.controls[name];
    const last = Math.max(count - 1, 0);
    const now = Math.min(value, last);
    Object.assign(slider, { max: last, disabled: !count });
    slider.value = String(now);
    [now <= 0, now >= last].forEach((over, i) => {
      if (over && document.activeElement === keys[i]) slider.focus({ preventScroll: true });
      keys[i].disabled = over;
    });
    const lane = this.inspector.cursor.pinned.lane.toUpperCase();
    const of = count ? `${now + 1} of ${count}` : "–";
    const text = name === "step" && count ? `${of}, lane ${lane}` : of;
    write(words, text);
    slider.setAttribute("aria-valuetext", text);
  }
}
