import { answering, UNANSWERED, type Component } from "../base/component.ts";
import { make, part } from "../base/dom.ts";
import { installGlossary, termNodes } from "./glossary.ts";
import {
  knobTable,
  measuredTable,
  publishedTable,
  withCode,
  type Knob,
  type Measured,
  type PublishedFigure,
} from "./method_tables.ts";

/** A method's name and its title. */
interface Named {
  name: string;
  title: string;
}

/** The page of a method (`inspector.page_data.method_pages`). */
interface MethodPage extends Named {
  kind: "cache" | "unmasker";
  paper: string;
  summary: string;
  description: string[];
  knobs: Knob[];
  published: PublishedFigure[];
  /** Null if the method was not measured. */
  measured: Measured | null;
  /** The methods that this one can be used on, and those that can be used on this one. */
  stands_on: Named[];
  carries: Named[];
  /** The query of the link to a race with this method in lane B; empty if no listed model fits. */
  query: string;
}

interface Group {
  title: string;
  methods: MethodPage[];
}

const ARXIV = /^arXiv (\d{4}\.\d{4,5})$/;
const KIND = {
  cache: "Cache: which rows are recomputed",
  unmasker: "Unmasker: which tokens are committed",
};

/** The address of a paper that is named as `arXiv 2505.15809`; null if it is named otherwise. */
function paperAddress(paper: string): string | null {
  const found = ARXIV.exec(paper);
  return found && "https://arxiv.org/abs/" + found[1];
}

function paperLink(paper: string): (Node | string)[] {
  const address = paperAddress(paper);
  if (address === null) return [];
  const link = make("a", "", paper);
  link.href = address;
  link.rel = "noopener";
  return [link, " · "];
}

function code(name: string): HTMLElement {
  return make("code", "", name);
}

/** The list of all methods, and the page of one. */
export class Methods {
  private readonly root: HTMLElement;
  private readonly pages = new Map<string, MethodPage>();
  /** Whether the page of a method is below the list, not beside it. */
  private readonly below = matchMedia("(max-width: 899px)");

  constructor(private readonly component: Component) {
    this.root = part(component.element, "[data-methods]");
    void this.open();
  }

  private find<E extends HTMLElement = HTMLElement>(name: string): E {
    return part<E>(this.root, "[data-method-" + name + "]");
  }

  private async open(): Promise<void> {
    const answered = await this.component.server.methods("").catch(() => null);
    if (answered === null) {
      this.find("list").textContent = UNANSWERED;
      return;
    }
    const { groups, note } = JSON.parse(answered) as { groups: Group[]; note: string };
    this.find("list").replaceChildren(...groups.flatMap((group) => this.listed(group)));
    this.find("note").textContent = note;
    const first = groups.flatMap(({ methods }) => methods).at(0);
    if (first) this.show(first.name);
  }

  private listed({ title, methods }: Group): HTMLElement[] {
    const list = make("ul");
    for (const method of methods) {
      this.pages.set(method.name, method);
      const row = make("li");
      const key = this.methodKey(method, "", () => {
        if (this.below.matches) this.find("page").scrollIntoView();
      });
      key.id = "ds-method-" + method.name;
      row.append(key);
      list.append(row);
    }
    return [make("h2", "", title), list];
  }

  private methodKey({ name, title }: Named, style: string, after: () => void): HTMLButtonElement {
    const key = make("button", style, title);
    key.type = "button";
    key.dataset.method = name;
    key.addEventListener("click", () => {
      this.show(name);
      after();
    });
    return key;
  }

  /** Buttons of methods in a sentence. */
  private jumps(methods: readonly Named[]): (Node | string)[] {
    return methods.flatMap((method, i) => [
      ...(i ? [", "] : []),
      this.methodKey(method, "ds-method-jump", () => this.find("title").focus()),
    ]);
  }

  private stackWords({ name, stands_on: beneath, carries: above }: MethodPage): (Node | string)[] {
    const parts: (Node | string)[] = [];
    if (beneath.length)
      parts.push(
        "Can be used alone or on ",
        ...this.jumps(beneath),
        ", written ",
        code(beneath[0].name + "+" + name),
        ". ",
      );
    if (above.length)
      parts.push(
        "Can be combined with ",
        ...this.jumps(above),
        ", written ",
        code(name + "+" + above[0].name),
        ".",
      );
    return parts;
  }

  private show(name: string): void {
    const page = this.pages.get(name);
    if (!page) return;
    this.drawHead(page);
    this.drawTables(page);
    this.find("page").hidden = false;
    this.root.dataset.method = name;
    for (const key of this.find("list").querySelectorAll("button"))
      key.setAttribute("aria-current", key.dataset.method === name ? "page" : "false");
  }

  private drawHead(page: MethodPage): void {
    this.find("kind").textContent = KIND[page.kind];
    this.find("title").textContent = page.title;
    this.find("summary").textContent = page.summary;
    this.find("paper").replaceChildren(...paperLink(page.paper), code(page.name));
    const link = this.find<HTMLAnchorElement>("try");
    link.href = "?" + page.query;
    link.hidden = !page.query;
    const seen = new Set<string>();
    const paragraphs = page.description.map((text) => {
      const out = make("p");
      out.append(...withCode(text, (plain) => termNodes(plain, seen)));
      return out;
    });
    this.find("description").replaceChildren(...paragraphs);
    const stack = this.stackWords(page);
    this.find("stack").replaceChildren(...stack);
    this.find("stack").hidden = !stack.length;
  }

  private drawTables({ knobs, published, measured }: MethodPage): void {
    this.find("knobs").replaceChildren(...(knobs.length ? [knobTable(knobs)] : []));
    this.find("knobless").hidden = knobs.length > 0;
    this.find("published").replaceChildren(
      ...(published.length ? [publishedTable(published)] : []),
    );
    this.find("published").hidden = !published.length;
    this.find("unpublished").hidden = published.length > 0;
    this.find("measured").replaceChildren(...(measured ? [measuredTable(measured)] : []));
    this.find("measured-part").hidden = !measured;
  }
}

/** Start the pages of the methods in their component. */
export function methods(component: Component): Methods {
  installGlossary();
  return new Methods(answering(component));
}
