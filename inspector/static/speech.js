const PROGRESS_EVERY = 10_000;
const NEWS_EVERY = 1000;

class Speech {
  constructor(box, store, headline) {
    Object.assign(this, { box, store, headline, at: 0, state: "", due: 0 });
  }

  tell() {
    const { store } = this;
    const going = store.state === "running" && this.state === "running";
    const left = this.at + (going ? PROGRESS_EVERY : NEWS_EVERY) - performance.now();
    clearTimeout(this.due);
    if (store.live && left > 0) {
      this.due = setTimeout(() => this.tell(), left);
      return;
    }
    Object.assign(this, { at: performance.now(), state: store.state });
    const told = spokenFetch(store.wait);
    const rest = told ? [told] : [this.headline(), ...chips(store)];
    const words = [STATES[store.state], ...rest].filter(Boolean).join(". ");
    if (this.box.textContent !== words) this.box.textContent = words;
  }
}
