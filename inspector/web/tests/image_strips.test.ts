/** The folded images of a lane, in a document without anything else. */
import assert from "node:assert/strict";
import test from "node:test";
import { ImageStrips } from "../src/race/images.ts";
import type { ImageMessage } from "../src/race/messages.ts";

/** Draws nothing, and notes the colours in which it would. */
class Pen {
  fillStyle = "";

  fillRect(): void {
    fills.push(this.fillStyle);
  }
  drawImage(image: object): void {
    pictures.push(image);
  }
}

class Node {
  readonly style = {};
  children: Node[] = [];
  hidden = false;
  width = 0;
  height = 0;

  append(...nodes: Node[]): void {
    this.children.push(...nodes);
  }
  replaceChildren(...nodes: Node[]): void {
    this.children = nodes;
  }
  setAttribute(): void {
    return;
  }
  addEventListener(): void {
    return;
  }
  getContext(): Pen {
    return new Pen();
  }
}

const IMAGE: ImageMessage = {
  name: "500x300-" + "0".repeat(32),
  width: 500,
  height: 300,
  mode: "anyres",
  first: 10,
  rows: 729 + 27 * 47,
  crops: 3,
  grid: [2, 1],
  map: [46, 27],
};

let fills: string[] = [];
let pictures: object[] = [];
let ground = "";
let recolour: () => void = () => undefined;
let force: () => void = () => undefined;

/** The box of a lane's images, and what draws them; `shown` are the images beside the prompt. */
function strips(shown: readonly object[] = []): [Node, ImageStrips] {
  const box = new Node();
  fills = [];
  pictures = [];
  Object.assign(globalThis, {
    document: { createElement: () => new Node(), querySelectorAll: () => shown, body: {} },
    // An element has the colours of the theme once it is on the page.
    getComputedStyle: () => ({ getPropertyValue: () => (box.children.length ? ground : "") }),
    matchMedia: () => ({ addEventListener: (_: string, react: () => void) => (force = react) }),
    MutationObserver: class {
      constructor(react: () => void) {
        recolour = react;
      }
      observe(): void {
        return;
      }
    },
  });
  return [box, new ImageStrips(box as unknown as HTMLElement, () => undefined)];
}

test("a tile has the colours of the theme, also once it changes or colours are forced", () => {
  const [, one] = strips();
  ground = "white";
  one.draw([IMAGE]);
  ground = "black";
  recolour();
  ground = "Canvas";
  force();
  assert.deepEqual(fills, ["white", "black", "Canvas"]);
});

test("the tile of a padded image is one crop, whatever a file says of its map", () => {
  const [box, one] = strips();
  one.draw([{ ...IMAGE, mode: "pad", rows: 730, map: [16_384, 16_384] }]);
  const [[tile]] = box.children[0].children.map(({ children }) => children);
  assert.deepEqual([tile.width, tile.height], [27, 27]);
});

test("an image that is on its way is drawn once it has come", () => {
  const image = Object.assign(new EventTarget(), { complete: false, naturalWidth: 0 });
  const [, one] = strips([{ dataset: { image: IMAGE.name }, querySelector: () => image }]);
  one.draw([IMAGE]);
  recolour();
  assert.deepEqual(pictures, []);
  Object.assign(image, { complete: true, naturalWidth: 500 });
  image.dispatchEvent(new Event("load"));
  assert.deepEqual(pictures, [image]);
});
