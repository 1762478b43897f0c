// Numbers as people read them.

const rounded = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { maximumSignificantDigits: 3, notation: "compact" });

/** A count, or its error: nobody reads −3.1e-7 of a point. */
export const many = (n: number): string => (Math.abs(n) < 0.001 ? "0" : Math.abs(n) < 10 ? fewDigits(n, 2) : rounded.format(n)).replace("-", "−");
export const brief = (n: number): string => short.format(n).replace("-", "−");

/** The same with a minus that is one. */
export const signed = (n: number, digits: number): string => fewDigits(n, digits).replace("-", "−");

export const fewDigits = (n: number, digits: number): string => `${Number(n.toPrecision(digits))}`;

/** How far an interval reaches to either side; ends below zero are cut off. */
export const margin = (answer: { estimate: number; low: number; high: number }): number =>
  Math.max(answer.high - answer.estimate, answer.estimate - answer.low);

/** The step to which numbers are rounded that lie so far apart. */
export const stepFor = (apart: number): number => 10 ** Math.floor(Math.log10(apart));

export function roundTo(n: number, step: number): number {
  const digits = Math.max(0, Math.round(-Math.log10(step)));
  return Number((Math.round(n / step) * step).toFixed(Math.min(digits, 15)));
}

/** Some round numbers from low to high. */
export function ticks(low: number, high: number, about: number): number[] {
  const raw = (high - low) / about;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((k) => k * power).find((k) => k >= raw) ?? raw;
  const found = [];
  for (let k = Math.ceil(low / step); k * step <= high + step * 1e-9; k++) found.push(roundTo(k * step, power / 10));
  return found;
}
