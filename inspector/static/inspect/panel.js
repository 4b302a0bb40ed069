const INSPECT_VIEWS = {};

class Panel {
  constructor(root, name, inspector) {
    this.view = INSPECT_VIEWS[name];
    this.name = name;
    this.inspector = inspector;
    this.figures = {};
    this.root = make("div", "ds-view");
    this.root.dataset.view = name;
    this.about = make("p", "ds-about");
    this.about.append(...termNodes(this.view.about));
    this.controls = make("div", "ds-controls");
    this.note = make("p", "ds-note");
    this.note.hidden = true;
    this.body = make("div", "ds-view-body");
    this.root.append(this.about, this.controls, this.note, this.body);
    root.append(this.root);
    this.values = {};
    for (const control of this.view.controls || []) this.control(control);
    this.controls.hidden = !this.controls.childNodes.length;
  }

  get cursor() {
    return this.inspector.cursor.now;
  }

  get lane() {
    return this.inspector.store.lanes[this.cursor.lane];
  }

  get frame() {
    return this.inspector.frames[this.cursor.lane];
  }

  control(control) {
    this.values[control.name] = control.value;
    const label = make("label", "", control.label + " ");
    const input = make(control.options ? "select" : "input");
    for (const [value, text] of control.options || []) {
      const option = make("option", "", text);
      option.value = value;
      input.append(option);
    }
    const shown = make("output");
    shown.ariaLive = "off";
    const words = control.words || ((value) => String(value));
    if (!control.options) Object.assign(input, { type: "range", min: control.min, max: control.max, step: control.step });
    input.value = control.value;
    input.dataset.control = control.name;
    input.setAttribute("aria-label", control.label);
    const read = () => {
      this.values[control.name] = control.options ? input.value : +input.value;
      if (!control.options) {
        shown.textContent = words(+input.value);
        input.setAttribute("aria-valuetext", words(+input.value));
      }
    };
    input.addEventListener("input", () => {
      read();
      this.inspector.draw();
    });
    read();
    label.append(input, shown);
    this.controls.append(label);
  }

  choices(name, options) {
    const input = this.controls.querySelector('[data-control="' + name + '"]');
    const key = JSON.stringify(options);
    if (input.dataset.key === key) return;
    input.dataset.key = key;
    input.replaceChildren(...options.map(([value, text]) => new Option(text, value)));
    const known = options.some(([value]) => value === this.values[name]);
    input.value = this.values[name] = known ? this.values[name] : options[0][0];
  }

  set(name, value) {
    this.values[name] = value;
    const input = this.controls.querySelector('[data-control="' + name + '"]');
    if (input) input.value = value;
    input?.dispatchEvent(new Event("input"));
  }

  figure(name) {
    if (!this.figures[name]) {
      this.figures[name] = new Figure(name);
      this.body.append(this.figures[name].root);
    }
    return this.figures[name];
  }

  block(name, tag = "div", style = "") {
    let node = this.body.querySelector(':scope > [data-block="' + name + '"]');
    if (!node) {
      node = make(tag, style);
      node.dataset.block = name;
      this.body.append(node);
    }
    return node;
  }

  say(text) {
    this.note.hidden = !text;
    if (this.note.textContent !== text) this.note.textContent = text;
    this.body.hidden = Boolean(text);
  }

  pick(part, pin) {
    const { cursor } = this.inspector;
    if (pin) cursor.move(part, true);
    else cursor.hover(part);
  }

  draw(data) {
    this.say("");
    this.view.draw(this, data);
  }

  text(position, step) {
    return this.inspector.tokenText(this.cursor.lane, position, step);
  }

  positions(extra) {
    const { frame } = this;
    const marks = [{ at: frame.prompt, strong: true }];
    for (let low = frame.prompt + frame.block; low < frame.positions; low += frame.block) marks.push({ at: low });
    return { name: "position", count: frame.positions, marks, ...extra };
  }

  steps() {
    const { frame } = this;
    const marks = [];
    for (let s = 1; s < frame.steps; s++) if (frame.blocks.values[s] !== frame.blocks.values[s - 1]) marks.push({ at: s });
    return { name: "step", count: frame.steps, marks };
  }

  get spot() {
    const { cursor, frame } = this;
    return { step: Math.min(cursor.step, frame.steps - 1), layer: Math.min(cursor.layer, frame.layers - 1) };
  }

  answers() {
    const { frame } = this;
    const marks = [];
    for (let low = frame.block; low < frame.positions - frame.prompt; low += frame.block) marks.push({ at: low });
    return { name: "answer token", count: frame.positions - frame.prompt, marks };
  }
}
