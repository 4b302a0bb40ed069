const CURSOR_KEY = /^([ab])\.([1-9]\d{0,3})\.([1-9]\d{0,3})(?:\.([1-9]\d{0,4}))?$/;

function readLink(search) {
  const query = new URLSearchParams(search);
  const found = CURSOR_KEY.exec(query.get("cursor") || "");
  const look = query.get("look");
  const number = (text) => (text === undefined ? null : +text - 1);
  return {
    cursor: found && { lane: found[1], step: number(found[2]), layer: number(found[3]), position: number(found[4]) },
    look: look !== null && Object.hasOwn(INSPECT_VIEWS, look) && !INSPECT_VIEWS[look].beside ? look : null,
  };
}

function fits(cursor, lane, frame) {
  if (!lane.start || !frame || cursor.step >= frame.steps || cursor.layer >= Math.max(frame.layers, 1)) return false;
  return cursor.position === null || cursor.position < frame.positions;
}

function cursorKey(inspector) {
  const { lane, step, layer, position } = inspector.cursor.pinned;
  const frame = inspector.frames[lane];
  if (!frame || layer === null) return "";
  const resting = lane === "a" && step === frame.steps - 1 && layer === Math.floor(frame.layers / 2) && position === null;
  const parts = [step, layer, ...(position === null ? [] : [position])].map((n) => n + 1);
  return resting ? "" : [lane, ...parts].join(".");
}

class Link {
  constructor(inspector) {
    this.inspector = inspector;
    this.wanted = readLink(location.search);
    this.told = "";
    if (this.wanted.cursor || this.wanted.look) inspector.seen = true;
    if (this.wanted.look) inspector.open(this.wanted.look);
    const watch = new MutationObserver(() => this.drawn());
    watch.observe(inspector.root, { attributeFilter: ["data-lane", "data-view"] });
  }

  drawn() {
    this.follow();
    this.tell();
  }

  follow() {
    const { inspector, wanted } = this;
    const { store, frames } = inspector;
    if (!wanted.cursor || store.live || !frames[wanted.cursor.lane]) return;
    if (this.run === store.run) {
      if (cursorKey(inspector) !== this.key) wanted.cursor = null;
    } else if (fits(wanted.cursor, store.lanes[wanted.cursor.lane], frames[wanted.cursor.lane])) {
      this.run = store.run;
      inspector.cursor.move(wanted.cursor, wanted.cursor.position !== null);
      this.key = cursorKey(inspector);
    }
  }

  tell() {
    const { inspector } = this;
    const look = inspector.name === inspector.tabs[0][0] ? "" : inspector.name;
    const detail = { cursor: cursorKey(inspector), look };
    const told = JSON.stringify(detail);
    if (told === this.told) return;
    this.told = told;
    document.dispatchEvent(new CustomEvent("driftscope-look", { detail }));
  }
}
