// Histograms: bars with intervals, a range that the user can drag, and a line of text that reads out a bar.

import type { Axis, Histogram } from "./api";
import { formatCompact, formatCount, formatSigned, margin as marginOf, roundTo, stepFor, ticks } from "./words";

const SVG = "http://www.w3.org/2000/svg";
const [TOP, BOTTOM, LEFT, RIGHT] = [6, 20, 38, 8]; // margins around the bars, in pixels

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
  private readonly readout = document.createElement("output");
  private data: Histogram | null = null;
  private range: [number, number];
  visible: [number, number]; // the range of the axis that is drawn
  private current: number | null = null;
  private width = 320;

  constructor(
    private readonly axis: Axis,
    private readonly changed: (low: number, high: number, done: boolean) => void,
  ) {
    this.range = this.visible = [axis.lo, axis.hi];
    const caption = document.createElement("figcaption");
    caption.textContent = axis.name;
    const frame = document.createElement("div");
    frame.className = "chart";
    frame.tabIndex = 0;
    frame.setAttribute("role", "group");
    frame.append(this.svg);
    this.element.append(caption, frame, this.readout);
    frame.addEventListener("keydown", (event) => this.step(event));
    frame.addEventListener("blur", () => this.select(null));
    this.drag(frame);
    new ResizeObserver(() => {
      this.width = frame.clientWidth || this.width;
      this.draw();
    }).observe(frame);
  }

  get bins(): number {
    return Math.max(12, Math.min(120, Math.round((this.width - LEFT - RIGHT) / 5)));
  }

  /** Choose what to draw: the whole axis, or the surroundings of a range that would be narrow on it. */
  zoomTo([low, high]: [number, number]): void {
    const { lo, hi } = this.axis;
    const size = high - low;
    const narrow = size > 0 && size < (hi - lo) / 5;
    this.visible = narrow ? [Math.max(lo, low - size), Math.min(hi, high + size)] : [lo, hi];
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

  /** The range of the bars that are drawn now: those of `visible` may not have arrived yet. */
  private drawn(): [number, number] {
    return this.data ? [this.data.edges[0]!, this.data.edges.at(-1)!] : this.visible;
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
      svg.append(shape("text", { x: Math.min(this.x(tick), width - 2), y: tall - 5, "text-anchor": anchor }, formatSigned(tick, 6)));
    }
    if (!data) return;
    const most = Math.max(1e-9, ...data.high);
    const y = (value: number): number => floor - (Math.min(Math.max(value, 0), most) / most) * (floor - TOP);
    svg.append(shape("text", { x: LEFT - 5, y: TOP + 8, "text-anchor": "end" }, formatCompact(most)));
    svg.append(shape("text", { x: LEFT - 5, y: floor, "text-anchor": "end" }, "0"));
    data.estimate.forEach((estimate, k) => {
      const [low, high] = [this.x(data.edges[k]!), this.x(data.edges[k + 1]!)];
      const middle = (low + high) / 2;
      const inside = whole || (data.edges[k + 1]! > this.range[0] && data.edges[k]! < this.range[1]);
      const bar = { x: low + 0.5, width: Math.max(0.5, high - low - 1), y: y(estimate), height: floor - y(estimate) };
      svg.append(shape("rect", { class: `bar${inside ? "" : " out"}${k === this.current ? " at" : ""}`, ...bar }));
      svg.append(shape("line", { class: "error", x1: middle, x2: middle, y1: y(data.low[k]!), y2: y(data.high[k]!) }));
    });
    this.describe();
  }

  /** Put into words the current bar, or else the highest one; screen readers get the highest one. */
  private describe(): void {
    const { data } = this;
    if (!data) return;
    const margin = ({ estimate, low, high }: Histogram, k: number): number =>
      marginOf({ estimate: estimate[k]!, low: low[k]!, high: high[k]! });
    const inWords = (k: number): string =>
      `${formatSigned(data.edges[k]!, 5)} to ${formatSigned(data.edges[k + 1]!, 5)}: ${formatCount(data.estimate[k]!)} ± ${formatCount(margin(data, k))}`;
    const peak = data.estimate.indexOf(Math.max(...data.estimate));
    this.readout.textContent = this.current === null ? `Highest bar, ${inWords(peak)}` : inWords(this.current);
    this.element
      .querySelector(".chart")!
      .setAttribute("aria-label", `Counts along ${this.axis.name}. Highest bar, ${inWords(peak)}. Use the arrow keys to read bar by bar.`);
  }

  private select(bar: number | null): void {
    if (bar === this.current) return;
    this.current = bar;
    this.draw();
  }

  private step(event: KeyboardEvent): void {
    const bars = this.data?.estimate.length;
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!bars || !step) return;
    event.preventDefault();
    this.select(Math.min(bars - 1, Math.max(0, (this.current ?? (step > 0 ? -1 : bars)) + step)));
  }

  private drag(frame: HTMLElement): void {
    let start: number | null = null;
    const xOf = (event: PointerEvent): number => ((event.clientX - frame.getBoundingClientRect().left) / frame.clientWidth) * this.width;
    frame.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      start = xOf(event);
      frame.setPointerCapture(event.pointerId);
    });
    frame.addEventListener("pointermove", (event) => {
      const x = xOf(event);
      if (start !== null && Math.abs(x - start) > 3) {
        this.changed(this.value(Math.min(start, x)), this.value(Math.max(start, x)), false);
      } else if (this.data) {
        const fraction = (x - LEFT) / (this.width - LEFT - RIGHT);
        const bars = this.data.estimate.length;
        this.select(fraction < 0 || fraction >= 1 ? null : Math.floor(fraction * bars));
      }
    });
    const end = (event: PointerEvent): void => {
      if (start !== null && Math.abs(xOf(event) - start) > 3) {
        this.changed(this.value(Math.min(start, xOf(event))), this.value(Math.max(start, xOf(event))), true);
      }
      start = null;
    };
    frame.addEventListener("pointerup", end);
    frame.addEventListener("pointercancel", () => (start = null));
    frame.addEventListener("pointerleave", () => this.select(null));
  }
}
