/**
 * Milliseconds as text, in hours and minutes from an hour; a dash if they are unknown. No measured
 * time is rounded to 0.
 */
export function duration(ms: number): string {
  if (!Number.isFinite(ms)) return "–";
  if (ms <= 0) return "0 ms";
  if (ms < 0.05) return number(ms, 1) + " ms";
  if (ms < 999.5) return ms.toFixed(ms < 9.95 ? 1 : 0) + " ms";
  const seconds = ms / 1000;
  if (seconds < 3599.995) return seconds.toFixed(2) + " s";
  const minutes = Math.round(seconds / 60);
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** About so many seconds as text, in minutes from a minute and a half. */
export function roughTime(seconds: number): string {
  if (seconds < 90) return `${Math.max(1, Math.round(seconds))} s`;
  return `${Math.round(seconds / 60)} min`;
}

const MOST_PLACES = 20; // that every browser knows
const formats = new Map<number, Intl.NumberFormat>();

/** The format of numbers with so many digits after the point; making one is slow. */
function formatOf(places: number): Intl.NumberFormat {
  const known = formats.get(places);
  if (known) return known;
  const made = new Intl.NumberFormat("en", { maximumFractionDigits: places });
  formats.set(places, made);
  return made;
}

/**
 * A number with thousands separators and at most so many digits after the point; a dash if it is
 * unknown. By default a number below 1 has two digits, as has any that would be rounded to 0.
 */
export function number(value: number | null | undefined, digits?: number): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size > 0 && size < (digits === undefined ? 1 : 0.5 * 10 ** -digits))
    return formatOf(Math.min(1 - Math.floor(Math.log10(size)), MOST_PLACES)).format(value);
  const places = digits ?? (size >= 100 || Number.isInteger(value) ? 0 : 1);
  return formatOf(places).format(value);
}

/** A count with its noun, in the plural unless it is 1. */
export function plural(count: number, noun: string): string {
  return number(count) + " " + noun + (count === 1 ? "" : "s");
}

/**
 * A share of 1 as a percentage, which is 0 or 100 % only if the share is 0 or 1; a dash if it is
 * unknown. It has at most so many digits after the point, by default fewer the larger it is.
 */
export function percent(share: number | null, digits?: number): string {
  if (share === null || !Number.isFinite(share)) return "–";
  if (share < 0) return "-" + percent(-share, digits);
  const value = 100 * share;
  if (digits !== undefined) {
    return number(share < 1 ? Math.min(value, 100 - 10 ** -digits) : value, digits) + " %";
  }
  if (value === 0) return "0 %";
  if (value < 1e-6) return "< 0.000001 %";
  if (value < 0.1) return value.toPrecision(1) + " %";
  if (value < 100 && value >= 99.5) return Math.min(value, 99.9).toFixed(1) + " %";
  return value.toFixed(value < 9.95 ? 1 : 0) + " %";
}

/** A probability as text; it reads as 0 or 1 only if it is. */
export function chance(p: number, digits = 3): string {
  const least = 10 ** -digits;
  if (p > 0 && p < least / 2) return "below " + least.toFixed(digits);
  if (p < 1 && p >= 1 - least / 2) return "above " + (1 - least).toFixed(digits);
  return p.toFixed(digits);
}
