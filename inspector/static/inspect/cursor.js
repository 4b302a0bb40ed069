class Cursor {
  constructor(onMove) {
    this.pinned = { lane: "a", step: 0, layer: null, position: null };
    this.preview = null;
    this.held = false;
    this.onMove = onMove;
  }

  get now() {
    return this.preview ? { ...this.pinned, ...this.preview } : this.pinned;
  }

  hover(part) {
    if (!part && !this.preview) return;
    this.preview = part;
    this.onMove("hover");
  }

  move(part, held = this.held) {
    const before = JSON.stringify([this.pinned, this.held]);
    Object.assign(this.pinned, part);
    this.held = held;
    this.preview = null;
    if (JSON.stringify([this.pinned, this.held]) !== before) this.onMove("move");
  }

  release() {
    this.move({ position: null }, false);
  }
}
