class CountTable {
  constructor({ drift }, quantity, from) {
    const [steps, layers, quantities, positions] = drift.shape;
    Object.assign(this, { steps, layers });
    this.upTo = new Uint32Array(steps * layers * 256);
    for (let cell = 0; cell < steps * layers; cell++) {
      const row = (cell * quantities + quantity) * positions;
      const counts = this.upTo.subarray(cell * 256, cell * 256 + 256);
      for (let x = from; x < positions; x++) counts[drift.values[row + x]]++;
      for (let code = 1; code < NO_DATA; code++) counts[code] += counts[code - 1];
    }
  }

  seen(step, layer) {
    return this.upTo[(step * this.layers + layer) * 256 + NO_DATA - 1];
  }

  above(step, layer, code) {
    return this.seen(step, layer) - this.upTo[(step * this.layers + layer) * 256 + code];
  }
}

function countTable(data, quantity, from) {
  const key = quantity + "," + from;
  if (data.countKey !== key) Object.assign(data, { countKey: key, countTable: new CountTable(data, quantity, from) });
  return data.countTable;
}

function rowsDone(plan, from, to, ...cell) {
  const base = plan.shape.slice(0, -1).reduce((place, size, i) => place * size + cell[i], 0) * plan.shape[3];
  let count = 0;
  for (let x = from; x < to; x++) count += (plan.values[base + (x >> 3)] >> (7 - (x & 7))) & 1;
  return count;
}

function percent(share) {
  if (share === null) return "–";
  const value = 100 * share;
  return (value === 0 ? "0" : value < 0.1 ? value.toPrecision(1) : value < 10 ? value.toFixed(1) : value.toFixed(0)) + " %";
}
