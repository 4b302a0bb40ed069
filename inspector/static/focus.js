const NEXT = { run: ["pause", "run"], pause: ["resume", "run"], step: ["step", "run"], resume: ["pause", "run"], stop: ["run"] };

class Focus {
  constructor(root, keys) {
    this.root = root;
    this.keys = keys;
    this.last = this.from = this.home = null;
    document.addEventListener("focusin", ({ target }) => this.came(target));
    document.addEventListener("focusout", () => this.usable(this.last) && (this.last = null));
    if (keys) tendDropdowns();
    this.came(document.activeElement || document.body);
  }

  came(target) {
    const keys = this.keys && target.closest(this.keys);
    this.from = keys || (this.root.contains(target) ? this.root : null);
    this.last = this.from && target;
    if (target === this.home) return;
    this.home = null;
    this.wishes = [target];
    if (!keys) return;
    this.watch(keys);
    const names = NEXT[target.id.replace("ds-", "")] || [];
    this.wishes = names.map((name) => keys.querySelector("#ds-" + name));
  }

  watch(keys) {
    if (this.watched === keys) return;
    this.watched = keys;
    Object.assign(keys, { tabIndex: -1, role: "group", ariaLabel: "Run, pause and stop" });
    new MutationObserver(() => this.check()).observe(keys, { subtree: true, attributeFilter: ["disabled"] });
  }

  usable(node) {
    return Boolean(node?.isConnected && !node.disabled && node.checkVisibility());
  }

  check() {
    const now = document.activeElement;
    const lost = this.last && !this.usable(this.last) && (now === document.body || now === this.last);
    if (!lost && (!this.home || now !== this.home)) return;
    const next = this.wishes.find((node) => this.usable(node));
    this.home = next ? null : this.from;
    (next || this.home).focus({ preventScroll: true });
  }
}
