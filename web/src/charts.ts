// Histograms: bars with intervals, a range that can be dragged, and a line that reads them out.

import type { Axis, Histogram } from "./api";
import { brief, many, margin as marginOf, roundTo, signed, stepFor, ticks } from "./words";

const SVG = "http://www.w3.org/2000/svg";
const [TOP, BOTTOM, LEFT, RIGHT] = [6, 20, 38, 8];

type Shape = Record<string, string | number>;

function shape(name: string, attributes: Shape, text?: string): SVGElement {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, `${value}`);
  if (text !== undefined) made.textContent = text;
  return made;
}

export class Chart {
  readonly element = document.createElement("figure");
  private readonly svg = shape("svg", { "aria-hidden": "true" });
  private readonly told = document.createElement("output");
  private data: Histogram | null = null;
  private range: [number, number];
  part: [number, number]; // of the axis, that is drawn
  private at: number | null = null;
  private width = 320;

  constructor(
    private readonly axis: Axis,
    private readonly changed: (low: number, high: number, done: boolean) => void,
  ) {
    this.range = this.part = [axis.lo, axis.hi];
    const caption = document.createElement("figcaption");
    caption.textContent = axis.name;
    const held = document.createElement("div");
    held.className = "chart";
    held.tabIndex = 0;
    held.setAttribute("role", "group");
    held.append(this.svg);
    this.element.append(caption, held, this.told);
    held.addEventListener("keydown", (event) => this.step(event));
    held.addEventListener("blur", () => this.point(null));
    this.drag(held);
    new ResizeObserver(() => {
      this.width = held.clientWidth || this.width;
      this.draw();
    }).observe(held);
  }

  get bins(): number {
    return Math.max(12, Math.min(120, Math.round((this.width - LEFT - RIGHT) / 5)));
  }

  /** Draw the whole axis, or what is near a range that would be narrow on it. */
  look([low, high]: [number, number]): void {
    const { lo, hi } = this.axis;
    const size = high - low;
    const narrow = size > 0 && size < (hi - lo) / 5;
    this.part = narrow ? [Math.max(lo, low - size), Math.min(hi, high + size)] : [lo, hi];
  }

  show(data: Histogram | null, range: [number, number]): void {
    this.data = data ?? this.data;
    this.range = range;
    this.draw();
  }

  private x(value: number): number {
    const [lo, hi] = this.drawn();
    return LEFT + ((value - lo) / (hi - lo)) * (this.width - LEFT - RIGHT);
  }

  private value(x: number): number {
    const [lo, hi] = this.drawn();
    const step = stepFor((hi - lo) / (this.width - LEFT - RIGHT));
    const raw = lo + ((x - LEFT) / (this.width - LEFT - RIGHT)) * (hi - lo);
    return Math.min(this.axis.hi, Math.max(this.axis.lo, roundTo(raw, step)));
  }

  /** What the bars are of: the part to draw may be on its way. */
  private drawn(): [number, number] {
    return this.data ? [this.data.edges[0]!, this.data.edges.at(-1)!] : this.part;
  }

  private draw(): void {
    const { svg, data, width } = this;
    const tall = width > 600 ? 200 : 104;
    svg.setAttribute("viewBox", `0 0 ${width} ${tall}`);
    svg.replaceChildren();
    const floor = tall - BOTTOM;
    const [lo, hi] = this.drawn();
    const whole = this.range[0] <= lo && this.range[1] >= hi;
    const [from, to] = this.range.map((value) => this.x(Math.min(hi, Math.max(lo, value))));
    if (!whole) svg.append(shape("rect", { class: "range", x: from!, y: TOP, width: Math.max(1, to! - from!), height: floor - TOP }));
    svg.append(shape("line", { class: "ground", x1: LEFT, x2: width - RIGHT, y1: floor, y2: floor }));
    for (const tick of ticks(lo, hi, width < 420 ? 4 : 8)) {
      const anchor = this.x(tick) > width - 24 ? "end" : "middle";
      svg.append(shape("text", { x: Math.min(this.x(tick), width - 2), y: tall - 5, "text-anchor": anchor }, signed(tick, 6)));
    }
    if (!data) return;
    const most = Math.max(1e-9, ...data.high);
    const y = (value: number): number => floor - (Math.min(Math.max(value, 0), most) / most) * (floor - TOP);
    svg.append(shape("text", { x: LEFT - 5, y: TOP + 8, "text-anchor": "end" }, brief(most)));
    svg.append(shape("text", { x: LEFT - 5, y: floor, "text-anchor": "end" }, "0"));
    data.estimate.forEach((estimate, k) => {
      const [low, high] = [this.x(data.edges[k]!), this.x(data.edges[k + 1]!)];
      const middle = (low + high) / 2;
      const inside = whole || (data.edges[k + 1]! > this.range[0] && data.edges[k]! < this.range[1]);
      const bar = { x: low + 0.5, width: Math.max(0.5, high - low - 1), y: y(estimate), height: floor - y(estimate) };
      svg.append(shape("rect", { class: `bar${inside ? "" : " out"}${k === this.at ? " at" : ""}`, ...bar }));
      svg.append(shape("line", { class: "error", x1: middle, x2: middle, y1: y(data.low[k]!), y2: y(data.high[k]!) }));
    });
    this.say();
  }

  /** Where the bars are highest, for those who do not see them; or the bar that is pointed at. */
  private say(): void {
    const { data } = this;
    if (!data) return;
    const margin = ({ estimate, low, high }: Histogram, k: number): number =>
      marginOf({ estimate: estimate[k]!, low: low[k]!, high: high[k]! });
    const told = (k: number): string =>
      `${signed(data.edges[k]!, 5)} to ${signed(data.edges[k + 1]!, 5)}: ${many(data.estimate[k]!)} ± ${many(margin(data, k))}`;
    const peak = data.estimate.indexOf(Math.max(...data.estimate));
    this.told.textContent = this.at === null ? `Most at ${told(peak)}` : told(this.at);
    this.element
      .querySelector(".chart")!
      .setAttribute("aria-label", `Counts along ${this.axis.name}. Most at ${told(peak)}. Arrow keys read bar by bar.`);
  }

  private point(at: number | null): void {
    if (at === this.at) return;
    this.at = at;
    this.draw();
  }

  private step(event: KeyboardEvent): void {
    const bars = this.data?.estimate.length;
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!bars || !by) return;
    event.preventDefault();
    this.point(Math.min(bars - 1, Math.max(0, (this.at ?? (by > 0 ? -1 : bars)) + by)));
  }

  private drag(held: HTMLElement): void {
    let start: number | null = null;
    const here = (event: PointerEvent): number => ((event.clientX - held.getBoundingClientRect().left) / held.clientWidth) * this.width;
    held.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      start = here(event);
      held.setPointerCapture(event.pointerId);
    });
    held.addEventListener("pointermove", (event) => {
      const x = here(event);
      if (start !== null && Math.abs(x - start) > 3) {
        this.changed(this.value(Math.min(start, x)), this.value(Math.max(start, x)), false);
      } else if (this.data) {
        const part = (x - LEFT) / (this.width - LEFT - RIGHT);
        const bars = this.data.estimate.length;
        this.point(part < 0 || part >= 1 ? null : Math.floor(part * bars));
      }
    });
    const end = (event: PointerEvent): void => {
      if (start !== null && Math.abs(here(event) - start) > 3) {
        this.changed(this.value(Math.min(start, here(event))), this.value(Math.max(start, here(event))), true);
      }
      start = null;
    };
    held.addEventListener("pointerup", end);
    held.addEventListener("pointercancel", () => (start = null));
    held.addEventListener("pointerleave", () => this.point(null));
  }
}
