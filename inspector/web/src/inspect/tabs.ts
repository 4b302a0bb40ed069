import { isShortcut, make, part } from "../base/dom.ts";
import { GROUPS, VIEWS, type ViewName } from "./views/index.ts";

const NAMES = GROUPS.flatMap(({ views }) => views);
let built = 0; // numbers the inspectors of the page, for ids of their own

/** The tab that a key moves to; null for other keys. */
export function tabAfter(now: ViewName, key: string): ViewName | null {
  const place = NAMES.indexOf(now);
  const places: Record<string, number | undefined> = {
    ArrowRight: (place + 1) % NAMES.length,
    ArrowLeft: (place - 1 + NAMES.length) % NAMES.length,
    Home: 0,
    End: NAMES.length - 1,
  };
  const next = places[key];
  return next === undefined ? null : NAMES[next];
}

/** The tabs of the views in named groups, which share one panel. */
export class Tabs {
  private readonly keys = new Map<ViewName, HTMLButtonElement>();
  private readonly id = `ds-views-${++built}`;
  private chosen: ViewName = NAMES[0];

  constructor(
    private readonly strip: HTMLElement,
    private readonly panel: HTMLElement,
    private readonly onOpen: (name: ViewName) => void,
  ) {
    panel.id = this.id + "-panel";
    for (const [i, group] of GROUPS.entries()) {
      const title = make("p", "ds-kicker", group.title);
      title.id = `${this.id}-group-${i + 1}`;
      const list = make("div", "ds-tab-list");
      list.setAttribute("role", "tablist");
      list.setAttribute("aria-labelledby", title.id);
      list.append(...group.views.map((name) => this.tab(name)));
      const box = make("div", "ds-tab-group");
      box.append(title, list);
      strip.append(box);
    }
    strip.addEventListener("keydown", (event) => this.key(event));
  }

  private tab(name: ViewName): HTMLButtonElement {
    const tab = make("button", "ds-tab", VIEWS[name].title);
    tab.type = "button";
    tab.id = `${this.id}-${name}`;
    tab.dataset.tab = name;
    tab.setAttribute("role", "tab");
    tab.setAttribute("aria-controls", this.panel.id);
    const sign = make("span", "", " ∅");
    sign.ariaHidden = "true";
    const mark = make("span");
    mark.dataset.nothing = "";
    mark.hidden = true;
    mark.append(sign, make("span", "ds-hidden", ", nothing to show"));
    tab.append(mark);
    tab.addEventListener("click", () => this.onOpen(name));
    this.keys.set(name, tab);
    return tab;
  }

  private key(event: KeyboardEvent): void {
    if (isShortcut(event)) return;
    const next = tabAfter(this.chosen, event.key);
    if (next === null) return;
    event.preventDefault();
    this.onOpen(next);
    this.keys.get(next)?.focus();
  }

  /** Choose a tab, and scroll the strip to it. */
  choose(name: ViewName): void {
    this.chosen = name;
    for (const [own, tab] of this.keys) {
      tab.setAttribute("aria-selected", String(own === name));
      tab.tabIndex = own === name ? 0 : -1;
    }
    const tab = this.keys.get(name);
    if (!tab) return;
    this.panel.setAttribute("aria-labelledby", tab.id);
    const [outer, inner] = [this.strip.getBoundingClientRect(), tab.getBoundingClientRect()];
    const outside = inner.left < outer.left || inner.right > outer.right;
    if (outside) this.strip.scrollLeft += inner.left - outer.left;
  }

  /** Mark the views that have nothing to show; `empty` has the reason of each. */
  mark(empty: ReadonlyMap<ViewName, string>): void {
    for (const [name, tab] of this.keys) {
      const reason = empty.get(name) ?? "";
      part(tab, "[data-nothing]").hidden = !reason;
      tab.classList.toggle("ds-empty", Boolean(reason));
      tab.title = reason;
    }
  }
}
