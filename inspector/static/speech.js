const PROGRESS_EVERY = 10_000;
const NEWS_EVERY = 1000;

class Speech {
  constructor(box, store, headline) {
    Object.assign(this, { box, store, headline, at: 0, state: "", due: 0 });
  }

  announce() {
    const { store } = this;
    const going = store.state === "running" && this.state === "running";
    const wait = this.at + (going ? PROGRESS_EVERY : NEWS_EVERY) - performance.now();
    clearTimeout(this.due);
    if (store.live && wait > 0) {
      this.due = setTimeout(() => this.announce(), wait);
      return;
    }
    Object.assign(this, { at: performance.now(), state: store.state });
    const fetching = spokenFetch(store.wait);
    const details = fetching ? [fetching] : [this.headline(), ...chips(store)];
    const words = [STATES[store.state], ...details].filter(Boolean).join(". ");
    if (this.box.textContent !== words) this.box.textContent = words;
  }
}
