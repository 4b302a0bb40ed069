/** For each object, the value that was computed last from it. It is gone with the object. */
export class OwnerCache<Owner extends object, Value> {
  private readonly kept = new WeakMap<Owner, { key: string; value: Value }>();

  /** The value for an owner and a key; `compute` is called if the owner's last key was another. */
  of(owner: Owner, key: string, compute: () => Value): Value {
    const last = this.kept.get(owner);
    if (last?.key === key) return last.value;
    const value = compute();
    this.kept.set(owner, { key, value });
    return value;
  }
}
