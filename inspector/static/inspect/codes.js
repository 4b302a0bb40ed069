const ARRAYS = { u1: Uint8Array, u2: Uint16Array, i4: Int32Array, f4: Float32Array };
const NO_DATA = 255;
const CODE_SCALE = 1e-3;
const CODE_RANGE = Math.log(1 + 2 / CODE_SCALE);
const DRIFT = Float64Array.from({ length: 256 }, (_, code) =>
  code === NO_DATA ? NaN : CODE_SCALE * (Math.exp((code / 254) * CODE_RANGE) - 1),
);
const DECADES = [-4, 0];

async function inflate(packed) {
  const bytes = Uint8Array.from(atob(packed.data), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  const values = new ARRAYS[packed.type](await new Response(stream).arrayBuffer());
  return { shape: packed.shape, values };
}

async function unpack(document) {
  const out = {};
  for (const [name, item] of Object.entries(document)) {
    const packed = item && typeof item === "object" && item.type in ARRAYS && item.shape;
    out[name] = packed ? await inflate(item) : item;
  }
  return out;
}

function at(array, ...index) {
  let place = 0;
  for (let i = 0; i < index.length; i++) place = place * array.shape[i] + index[i];
  return array.values[place];
}

function bit(array, position, ...index) {
  return (at(array, ...index, position >> 3) >> (7 - (position & 7))) & 1;
}

function decade(value) {
  const log = Math.log10(Math.max(value, 1e-12));
  return Math.min(Math.max((log - DECADES[0]) / (DECADES[1] - DECADES[0]), 0), 1);
}

const DRIFT_COLOURS = Array.from(DRIFT.subarray(0, NO_DATA), (drift) => cividis(decade(drift)));

function driftColour(code) {
  return DRIFT_COLOURS[code];
}

function driftText(code) {
  if (code === NO_DATA) return "not evaluated";
  return DRIFT[code] < 1e-4 ? "below 0.0001" : DRIFT[code].toPrecision(2);
}

const DRIFT_SCALE = {
  kind: "scale",
  name: "1 − cosine",
  colour: cividis,
  ticks: [[0, "≤ 0.0001"], [0.25, "0.001"], [0.5, "0.01"], [0.75, "0.1"], [1, "1"]],
};
