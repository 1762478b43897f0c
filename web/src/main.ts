// The page. Its state is one box or zone; the answer, the charts and the address follow from it.

import * as address from "./address";
import * as api from "./api";
import { Chart } from "./charts";
import type { Map as MapOf } from "./map";
import { onTheme, start as startTheme, theme } from "./theme";
import { formatCompact, formatCount, margin, roundTo, stepFor, toDigits } from "./words";

const get = <E extends HTMLElement = HTMLElement>(id: string): E => document.getElementById(id) as E;

type PreviousAnswer = { zone: string; box: number[]; answer: api.Answer; confidence: number };

let info: api.Info;
let box: number[] | null = null;
let zone: number | null = null;
let zones: GeoJSON.Feature[] = [];
let confidence = 0.95;
let map: MapOf | null = null;
let charts: Chart[] = [];
let previous: PreviousAnswer[] = [];
let mapAxes: [number, number] = [0, 1]; // indices of the axes on the map

const axes = (): api.Axis[] => info.domain.axes;
const everywhere = (): number[] => [...axes().map((axis) => axis.lo), ...axes().map((axis) => axis.hi)];

// Requests for counts

let pending: AbortController | null = null;
let queued: boolean | null = null; // a request that waits for the pending one, and whether it is the last of a drag

async function ask(done: boolean): Promise<void> {
  if (pending && !done) {
    queued = done;
    return; // sent once the pending request is answered
  }
  pending?.abort();
  queued = null;
  const mine = (pending = new AbortController());
  const [sides, name, level] = [box ?? everywhere(), zone === null ? "" : zoneName(zone), confidence];
  try {
    const area = zone === null ? { boxes: [sides] } : { zones: [zone] };
    const answer = await api.count(area, level, mine.signal);
    if (mine !== pending) return;
    showAnswer(answer, name);
    if (done && (box || zone !== null)) remember({ zone: name, box: zone === null ? sides : [], answer, confidence: level });
    showError("");
  } catch (error) {
    if (mine.signal.aborted) return;
    showError(error instanceof api.Refused ? error.message : "No answer from the server. Is veilmap explore still running?");
  }
  pending = null;
  if (queued !== null) void ask(queued);
}

function showAnswer(answer: api.Answer, name: string): void {
  get("what").textContent = name || (box ? "In this box" : "In the whole domain");
  get("estimate").textContent = formatCount(answer.estimate);
  get("interval").textContent = `${percent(confidence)} interval: ${formatCount(answer.low)} to ${formatCount(answer.high)}`;
  get("error").textContent = `Estimate ± ${formatCount(margin(answer))}; standard error ${formatCount(answer.stderr)}`;
  get("estimate").dataset["exact"] = JSON.stringify(answer);
}

const percent = (fraction: number): string => `${toDigits(100 * fraction, 4)}\u00a0%`;

function showError(message: string): void {
  get("fault").textContent = message;
  get("fault").hidden = !message;
}

let chartTimer: ReturnType<typeof setTimeout> | undefined;

function redrawCharts(done: boolean): void {
  const sides = box ?? everywhere();
  const range = (k: number): [number, number] => [sides[k]!, sides[k + axes().length]!];
  charts.forEach((chart, k) => chart.show(null, range(k)));
  if (done) charts.forEach((chart, k) => chart.zoomTo(range(k)));
  clearTimeout(chartTimer);
  chartTimer = setTimeout(async () => {
    try {
      const histograms = await Promise.all(
        charts.map((chart, k) => api.histogram(axes()[k]!.name, chart.bins, sides, chart.visible, confidence)),
      );
      if (sides.join() === (box ?? everywhere()).join()) charts.forEach((chart, k) => chart.show(histograms[k]!, range(k)));
    } catch (error) {
      if (error instanceof api.Refused && get("fault").hidden) showError(error.message); // the count of the same box may have shown its own error
    }
  }, 120);
}

// The box

function setBox(next: number[] | null, done: boolean): void {
  box = next;
  if (zone !== null) setZone(null, false);
  fillForm();
  map?.showBox(next && corners(next));
  if (done) address.write(place());
  void ask(done);
  redrawCharts(done);
}

function corners(sides: number[]): { low: [number, number]; high: [number, number] } {
  const [x, y] = mapAxes;
  const d = axes().length;
  return { low: [sides[x]!, sides[y]!], high: [sides[x + d]!, sides[y + d]!] };
}

function withCorners(drawn: { low: [number, number]; high: [number, number] }): number[] {
  const next = [...(box ?? everywhere())];
  mapAxes.forEach((axis, k) => {
    next[axis] = drawn.low[k]!;
    next[axis + axes().length] = drawn.high[k]!;
  });
  return next;
}

/** Move the box by tenths of its size, or resize it; if there is none, make one in the middle of the view. */
function nudge(direction: [number, number], growth: number): void {
  if (!map) return;
  if (!box) {
    const { low, high } = map.seen();
    const at = (k: 0 | 1, fraction: number): number => round(low[k] + (high[k] - low[k]) * fraction, axes()[mapAxes[k]]!);
    setBox(withCorners({ low: [at(0, 1 / 3), at(1, 1 / 3)], high: [at(0, 2 / 3), at(1, 2 / 3)] }), true);
    return;
  }
  const next = [...box];
  mapAxes.forEach((axis, k) => {
    const [low, high] = [box![axis]!, box![axis + axes().length]!];
    const [size, full] = [high - low, axes()[axis]!];
    const step = Math.min(Math.max(direction[k]! * size * 0.1, full.lo - low), full.hi - high);
    next[axis] = Math.max(full.lo, round(low + step - growth * size * 0.05, full));
    next[axis + axes().length] = Math.min(full.hi, round(high + step + growth * size * 0.05, full));
  });
  setBox(next, true);
}

const round = (value: number, axis: api.Axis): number => roundTo(value, stepFor((axis.hi - axis.lo) / 1e5));

function makeForm(): void {
  const form = get<HTMLFormElement>("box");
  const table = document.createElement("div");
  table.className = "sides";
  table.append(...["", "from", "to"].map((text) => Object.assign(document.createElement("span"), { className: "end", textContent: text, ariaHidden: "true" })));
  axes().forEach((axis, k) => {
    const name = document.createElement("span");
    name.textContent = axis.name;
    name.className = "axis";
    table.append(name);
    for (const [end, at] of [["from", k], ["to", k + axes().length]] as const) {
      const input = document.createElement("input");
      Object.assign(input, { type: "number", name: `${at}`, step: `${stepFor((axis.hi - axis.lo) / 20)}` });
      input.setAttribute("aria-label", `${axis.name} ${end}`);
      input.setAttribute("inputmode", "decimal");
      table.append(input);
    }
  });
  const row = document.createElement("p");
  row.className = "row";
  row.innerHTML = `<button type="submit">Count</button><button type="button" id="reset" title="Count in the whole domain">Reset</button>
    <label>Confidence <select id="confidence"><option value="0.8">80 %</option><option value="0.9">90 %</option><option value="0.95" selected>95 %</option><option value="0.99">99 %</option></select></label>`;
  form.append(table, row);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    setBox(typed(), true);
  });
  form.addEventListener("change", (event) => {
    if (event.target instanceof HTMLInputElement) setBox(typed(), true);
  });
  get("reset").addEventListener("click", () => setBox(null, true));
  get("confidence").addEventListener("change", () => {
    confidence = Number(get<HTMLSelectElement>("confidence").value);
    void ask(true);
    redrawCharts(true);
  });
}

const inputs = (): HTMLInputElement[] => [...get("box").querySelectorAll("input")].sort((a, b) => Number(a.name) - Number(b.name));

function typed(): number[] {
  return inputs().map((input, k) => (Number.isFinite(input.valueAsNumber) ? input.valueAsNumber : everywhere()[k]!));
}

function fillForm(): void {
  const sides = box ?? everywhere();
  inputs().forEach((input, k) => {
    if (input.valueAsNumber !== sides[k]) input.value = `${sides[k]}`;
  });
}

// Zones

const zoneName = (k: number): string => {
  const name = zones[k]?.properties?.["name"];
  return typeof name === "string" && name ? name : `Zone ${k + 1}`;
};

function setZone(next: number | null, done: boolean): void {
  zone = next !== null && next < zones.length ? next : null;
  get<HTMLSelectElement>("zone").value = zone === null ? "" : `${zone}`;
  map?.showZone(zone);
  if (!done) return;
  if (zone !== null) {
    box = null;
    fillForm();
    map?.showBox(null);
    redrawCharts(true);
  }
  address.write(place());
  void ask(true);
}

async function loadZones(): Promise<void> {
  zones = (await api.zones()).features;
  get("zones").hidden = false;
  const select = get<HTMLSelectElement>("zone");
  select.append(...zones.map((_, k) => new Option(zoneName(k), `${k}`)));
  select.addEventListener("change", () => {
    setZone(select.value === "" ? null : Number(select.value), true);
    if (zone !== null) map?.show(zones[zone]!.geometry);
  });
}

// Previous answers

function remember(one: PreviousAnswer): void {
  previous = previous.filter((other) => other.zone !== one.zone || other.box.join() !== one.box.join() || other.confidence !== one.confidence);
  previous.push(one);
  listPrevious();
}

function listPrevious(): void {
  get("kept").hidden = previous.length === 0;
  const d = axes().length;
  const rows = previous.map((one) => {
    const row = document.createElement("tr");
    const sides = axes().map((_, k) => `${toDigits(one.box[k] ?? 0, 6)} to ${toDigits(one.box[k + d] ?? 0, 6)}`);
    const cells = [one.zone || sides.join(", "), formatCount(one.answer.estimate), `${formatCount(one.answer.low)} to ${formatCount(one.answer.high)}`];
    row.append(...cells.map((text) => Object.assign(document.createElement("td"), { textContent: text })));
    return row;
  });
  get("kept").querySelector("tbody")!.replaceChildren(...rows.reverse());
}

/** CSV with the columns of `veilmap query --format csv`, and the zone, confidence and privacy. */
function csv(): string {
  const quoted = (text: string): string => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  // Keep spreadsheets from running a name as a formula, as csv_cells.py does: at the start, and after a separator.
  const plain = (name: string): string => {
    const text = name.replaceAll(/(;\s*|(?<=\S)\t\s*)(?=[=+\-@＝＋－＠])/g, "$1'");
    return /^(\s|\p{C})*[=+\-@＝＋－＠]|^[\t\r\n]/u.test(text) ? `'${text}` : text;
  };
  const sides = ["low", "high"].flatMap((end) => axes().map((axis) => plain(`${axis.name}_${end}`)));
  const named = info.zones ? ["zone"] : [];
  const header = [...named, ...sides, "estimate", "stderr", "low", "high", "confidence", "private"];
  const rows = previous.map(({ zone: name, box: boxSides, answer, confidence: level }) => [
    ...(info.zones ? [plain(name)] : []),
    ...sides.map((_, k) => boxSides[k] ?? ""),
    ...[answer.estimate, answer.stderr, answer.low, answer.high, level],
    `${info.private}`,
  ]);
  return [header, ...rows].map((row) => row.map((cell) => quoted(`${cell}`)).join(",")).join("\r\n") + "\r\n";
}

function download(): void {
  const url = URL.createObjectURL(new Blob([csv()], { type: "text/csv" }));
  Object.assign(document.createElement("a"), { href: url, download: `${info.name.replace(/\.parquet$/, "")}-answers.csv` }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

// The map and its legend

function hasWebGL(): boolean {
  try {
    return document.createElement("canvas").getContext("webgl2") !== null;
  } catch {
    return false;
  }
}

/** The current place; the view in the address is kept while the map loads. */
const place = (): address.Place => ({ view: map ? map.view() : address.read(axes().length).view, box, zone });

async function startMap(settings: api.Drawn, view: address.View | null): Promise<void> {
  get("stage").hidden = false;
  if (!hasWebGL()) {
    get("no-webgl").hidden = false;
    for (const id of ["tools", "credit", "map", "keys"]) get(id).hidden = true;
    get("stage").classList.add("no-map");
    return;
  }
  const [{ Map: MapOf }, base] = await Promise.all([import("./map"), api.baseMap()]);
  const made = new MapOf(get("map"), settings, axes(), info.stamp, theme(), view, base, {
    drawn: (next, done) => {
      setBox(withCorners(next), done);
      if (done) setDrawing(false);
    },
    moved: () => address.write(place()),
    picked: (next) => setZone(next, true),
    keyed: nudge,
  });
  await made.ready();
  map = made;
  made.showBox(box && corners(box));
  if (info.zones) made.showZones({ type: "FeatureCollection", features: zones });
  made.showZone(zone);
  address.write(place());
  onTheme((now) => made.paint(now));
  get("draw").addEventListener("click", () => setDrawing(!made.drawing));
  get("view-box").addEventListener("click", () => setBox(withCorners(made.seen()), true));
  get("home").addEventListener("click", () => made.home());
  addEventListener("keydown", (event) => {
    if (event.key === "Escape") setDrawing(false);
  });
  get("credit").hidden = base.features.length === 0;
  showLegend(settings.legend);
  onTheme(() => showLegend(settings.legend));
}

function setDrawing(on: boolean): void {
  map?.setDrawing(on);
  get("draw").setAttribute("aria-pressed", `${on}`);
}

function showLegend({ low, high, unit, colours }: api.Legend): void {
  get("legend").hidden = false;
  let per = 1; // area units per which densities are given, so that they are not all far below 1
  while (unit === "km²" && low * per < 0.5 && per < 1e6) per *= 100;
  const area = per > 1 ? `${per.toLocaleString("en")} ${unit}` : unit;
  get("legend").querySelector("figcaption")!.textContent = `Points per ${area}, log scale`;
  get("ramp").style.background = `linear-gradient(to right, ${colours[theme()].join(", ")})`;
  const middle = Math.sqrt(low * high);
  get("ticks").replaceChildren(
    ...[low, middle, high].map((value) => Object.assign(document.createElement("span"), { textContent: formatCompact(value * per) })),
  );
}

// Start

async function start(): Promise<void> {
  startTheme(get<HTMLButtonElement>("theme"));
  info = await api.info();
  document.title = `${info.name} · veilmap explore`;
  get("name").textContent = info.name;
  get("facts").textContent = `Method ${info.method} · ${info.leaves.toLocaleString("en")} leaves · ${axes().length > 1 ? "axes" : "axis"} ${axes().map((axis) => axis.name).join(" × ")}`;
  get("epsilon").textContent = info.private ? `ε = ${info.epsilon}${info.delta ? `, δ = ${info.delta}` : ""}.` : "Not private.";
  const statement = info.statement.replace(/^NOT PRIVATE\. /, ""); // the page shows that before the statement
  get("statement").textContent = statement;
  get("alarm").hidden = info.private;
  get("alarm").querySelector("span")!.textContent = statement;
  if (info.map) mapAxes = info.map.axes.map((name) => axes().findIndex((axis) => axis.name === name)) as [number, number];
  makeForm();
  charts = axes().map(
    (axis, k) =>
      new Chart(axis, (low, high, done) => {
        if (low >= high) return;
        const next = [...(box ?? everywhere())];
        [next[k], next[k + axes().length]] = [low, high];
        setBox(next, done);
      }),
  );
  get("charts").append(...charts.map((chart) => chart.element));
  get("csv").addEventListener("click", download);
  get("clear").addEventListener("click", () => {
    previous = [];
    listPrevious();
  });
  document.body.classList.toggle("flat", !info.map);
  get("keys").hidden = !info.map;
  if (info.zones) await loadZones();
  const initial = address.read(axes().length);
  restore(initial); // show the answer while the map loads
  if (info.map) await startMap(info.map, initial.view);
  address.onChange(() => restore(address.read(axes().length)));
  document.body.dataset["ready"] = "yes";
}

function restore(target: address.Place): void {
  if (target.view) map?.go(target.view);
  if (target.zone !== null && target.zone < zones.length) setZone(target.zone, true);
  else setBox(target.box, true);
}

start().catch((error: unknown) => {
  showError(error instanceof api.Refused ? error.message : "The page could not start. Is veilmap explore still running?");
  console.error(error);
});
