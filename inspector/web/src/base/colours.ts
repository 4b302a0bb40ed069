/** Red, green and blue, 0 to 255. */
export type Rgb = readonly [number, number, number];

const CIVIDIS: readonly Rgb[] = [
  [0, 34, 78],
  [18, 53, 112],
  [59, 73, 108],
  [87, 93, 109],
  [112, 113, 115],
  [138, 134, 120],
  [165, 156, 116],
  [195, 179, 105],
  [225, 204, 85],
  [254, 232, 56],
];

const PUOR: readonly Rgb[] = [
  [127, 59, 8],
  [179, 88, 6],
  [224, 130, 20],
  [253, 184, 99],
  [254, 224, 182],
  [247, 247, 247],
  [216, 218, 235],
  [178, 171, 210],
  [128, 115, 172],
  [84, 39, 136],
  [45, 0, 75],
];
/** The Cividis colour of a value from 0 (dark) to 1 (bright). */
export function cividis(value: number): Rgb {
  return mixed(CIVIDIS, value);
}

/** The colour of a difference, from orange (0) over white (0.5) to purple (1). */
export function puor(value: number): Rgb {
  return mixed(PUOR, value);
}

/** The colour at a place from 0 to 1 between evenly spaced colours. */
function mixed(colours: readonly Rgb[], value: number): Rgb {
  const place = Math.min(Math.max(value, 0), 1) * (colours.length - 1);
  const low = Math.min(Math.floor(place), colours.length - 2);
  const share = place - low;
  const mix = (i: number): number =>
    Math.round(colours[low][i] + (colours[low + 1][i] - colours[low][i]) * share);
  return [mix(0), mix(1), mix(2)];
}

/** A colour as CSS text. */
export function rgb(colour: Rgb): string {
  return "rgb(" + colour.join(", ") + ")";
}

/** Black or white, whichever is legible on a colour. */
export function inkOn(colour: Rgb): string {
  const [r, g, b] = colour.map((c) => (c <= 10 ? c / 3294 : ((c / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.18 ? "#111" : "#fff";
}
