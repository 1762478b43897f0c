// Numbers formatted for people.

const rounded = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { maximumSignificantDigits: 3, notation: "compact" });

/** A count or its error, rounded; values near 0 are shown as 0. */
export const formatCount = (n: number): string => (Math.abs(n) < 0.001 ? "0" : Math.abs(n) < 10 ? toDigits(n, 2) : rounded.format(n)).replace("-", "−");
export const formatCompact = (n: number): string => short.format(n).replace("-", "−");

/** A number with a typographic minus sign. */
export const formatSigned = (n: number, digits: number): string => toDigits(n, digits).replace("-", "−");

export const toDigits = (n: number, digits: number): string => `${Number(n.toPrecision(digits))}`;

/** The longer side of an interval around its estimate: the low end is cut off at 0. */
export const margin = (answer: { estimate: number; low: number; high: number }): number =>
  Math.max(answer.high - answer.estimate, answer.estimate - answer.low);

/** The power of ten to which numbers are rounded that lie this far apart. */
export const stepFor = (apart: number): number => 10 ** Math.floor(Math.log10(apart));

export function roundTo(n: number, step: number): number {
  const digits = Math.max(0, Math.round(-Math.log10(step)));
  return Number((Math.round(n / step) * step).toFixed(Math.min(digits, 15)));
}

/** About this many round numbers from low to high. */
export function ticks(low: number, high: number, about: number): number[] {
  const raw = (high - low) / about;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((k) => k * power).find((k) => k >= raw) ?? raw;
  const values = [];
  for (let k = Math.ceil(low / step); k * step <= high + step * 1e-9; k++) values.push(roundTo(k * step, power / 10));
  return values;
}
