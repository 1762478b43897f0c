// The page: one box or zone is asked about at a time; everything else follows from it.

import * as address from "./address";
import * as api from "./api";
import { Chart } from "./charts";
import type { Map as MapOf } from "./map";
import { onTheme, start as startTheme, theme } from "./theme";
import { brief, fewDigits, many, margin, roundTo, stepFor } from "./words";

const get = <E extends HTMLElement = HTMLElement>(id: string): E => document.getElementById(id) as E;

type Kept = { zone: string; box: number[]; answer: api.Answer; confidence: number };

let info: api.Info;
let box: number[] | null = null;
let zone: number | null = null;
let zones: GeoJSON.Feature[] = [];
let confidence = 0.95;
let map: MapOf | null = null;
let charts: Chart[] = [];
let kept: Kept[] = [];
let drawn: [number, number] = [0, 1]; // the axes on the map

const axes = (): api.Axis[] => info.domain.axes;
const everywhere = (): number[] => [...axes().map((axis) => axis.lo), ...axes().map((axis) => axis.hi)];

// Asking

let asking: AbortController | null = null;
let waiting: boolean | null = null; // whether the next question is the last of a drag

async function ask(done: boolean): Promise<void> {
  if (asking && !done) {
    waiting = done;
    return; // the answer on its way will ask again
  }
  asking?.abort();
  waiting = null;
  const mine = (asking = new AbortController());
  const [of, name, sure] = [box ?? everywhere(), zone === null ? "" : zoneName(zone), confidence];
  try {
    const where = zone === null ? { boxes: [of] } : { zones: [zone] };
    const answer = await api.count(where, sure, mine.signal);
    if (mine !== asking) return;
    tell(answer, name);
    if (done && (box || zone !== null)) keep({ zone: name, box: zone === null ? of : [], answer, confidence: sure });
    fault("");
  } catch (error) {
    if (mine.signal.aborted) return;
    fault(error instanceof api.Refused ? error.message : "The server does not answer: is veilmap explore still running?");
  }
  asking = null;
  if (waiting !== null) {
    const next = waiting;
    waiting = null;
    void ask(next);
  }
}

function tell(answer: api.Answer, name: string): void {
  get("what").textContent = name || (box ? "In the box" : "Everywhere");
  get("estimate").textContent = many(answer.estimate);
  get("interval").textContent = `${percent(confidence)} interval: ${many(answer.low)} to ${many(answer.high)}`;
  get("error").textContent = `± ${many(margin(answer))}, standard error ${many(answer.stderr)}`;
  get("estimate").dataset["exact"] = JSON.stringify(answer);
}

const percent = (part: number): string => `${fewDigits(100 * part, 4)}\u00a0%`;

function fault(sentence: string): void {
  get("fault").textContent = sentence;
  get("fault").hidden = !sentence;
}

let charting: ReturnType<typeof setTimeout> | undefined;

function redrawCharts(done: boolean): void {
  const of = box ?? everywhere();
  const range = (k: number): [number, number] => [of[k]!, of[k + axes().length]!];
  charts.forEach((chart, k) => chart.show(null, range(k)));
  if (done) charts.forEach((chart, k) => chart.look(range(k)));
  clearTimeout(charting);
  charting = setTimeout(async () => {
    try {
      const found = await Promise.all(
        charts.map((chart, k) => api.histogram(axes()[k]!.name, chart.bins, of, chart.part, confidence)),
      );
      if (of.join() === (box ?? everywhere()).join()) charts.forEach((chart, k) => chart.show(found[k]!, range(k)));
    } catch (error) {
      if (error instanceof api.Refused && get("fault").hidden) fault(error.message); // of a box, the count has said more
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

function corners(of: number[]): { low: [number, number]; high: [number, number] } {
  const [x, y] = drawn;
  const d = axes().length;
  return { low: [of[x]!, of[y]!], high: [of[x + d]!, of[y + d]!] };
}

function withCorners(made: { low: [number, number]; high: [number, number] }): number[] {
  const next = [...(box ?? everywhere())];
  drawn.forEach((axis, k) => {
    next[axis] = made.low[k]!;
    next[axis + axes().length] = made.high[k]!;
  });
  return next;
}

/** The box moved by parts of its size, or grown; without one, one in the middle of what is seen. */
function nudge(by: [number, number], grow: number): void {
  if (!map) return;
  if (!box) {
    const { low, high } = map.seen();
    const third = (k: 0 | 1, part: number): number => round(low[k] + (high[k] - low[k]) * part, axes()[drawn[k]]!);
    setBox(withCorners({ low: [third(0, 1 / 3), third(1, 1 / 3)], high: [third(0, 2 / 3), third(1, 2 / 3)] }), true);
    return;
  }
  const next = [...box];
  drawn.forEach((axis, k) => {
    const [low, high] = [box![axis]!, box![axis + axes().length]!];
    const [size, of] = [high - low, axes()[axis]!];
    const step = Math.min(Math.max(by[k]! * size * 0.1, of.lo - low), of.hi - high);
    next[axis] = Math.max(of.lo, round(low + step - grow * size * 0.05, of));
    next[axis + axes().length] = Math.min(of.hi, round(high + step + grow * size * 0.05, of));
  });
  setBox(next, true);
}

const round = (value: number, axis: api.Axis): number => roundTo(value, stepFor((axis.hi - axis.lo) / 1e5));

function makeForm(): void {
  const form = get<HTMLFormElement>("box");
  const table = document.createElement("div");
  table.className = "sides";
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
  row.innerHTML = `<button type="submit">Count</button><button type="button" id="reset">Everywhere</button>
    <label><span class="unseen">Confidence</span> <select id="sure"><option value="0.8">80 %</option><option value="0.9">90 %</option><option value="0.95" selected>95 %</option><option value="0.99">99 %</option></select></label>`;
  form.append(table, row);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    setBox(typed(), true);
  });
  form.addEventListener("change", (event) => {
    if (event.target instanceof HTMLInputElement) setBox(typed(), true);
  });
  get("reset").addEventListener("click", () => setBox(null, true));
  get("sure").addEventListener("change", () => {
    confidence = Number(get<HTMLSelectElement>("sure").value);
    void ask(true);
    redrawCharts(true);
  });
}

const inputs = (): HTMLInputElement[] => [...get("box").querySelectorAll("input")].sort((a, b) => Number(a.name) - Number(b.name));

function typed(): number[] {
  return inputs().map((input, k) => (Number.isFinite(input.valueAsNumber) ? input.valueAsNumber : everywhere()[k]!));
}

function fillForm(): void {
  const of = box ?? everywhere();
  inputs().forEach((input, k) => {
    if (input.valueAsNumber !== of[k]) input.value = `${of[k]}`;
  });
}

// Zones

const zoneName = (k: number): string => {
  const said = zones[k]?.properties?.["name"];
  return typeof said === "string" && said ? said : `Zone ${k + 1}`;
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
  const found = await api.zones();
  zones = found.features;
  get("zones").hidden = false;
  const select = get<HTMLSelectElement>("zone");
  select.append(...zones.map((_, k) => new Option(zoneName(k), `${k}`)));
  select.addEventListener("change", () => {
    setZone(select.value === "" ? null : Number(select.value), true);
    if (zone !== null) map?.show(zones[zone]!.geometry);
  });
}

// Answers so far

function keep(one: Kept): void {
  kept = kept.filter((other) => other.zone !== one.zone || other.box.join() !== one.box.join() || other.confidence !== one.confidence);
  kept.push(one);
  listKept();
}

function listKept(): void {
  get("kept").hidden = kept.length === 0;
  const d = axes().length;
  const rows = kept.map((one) => {
    const row = document.createElement("tr");
    const sides = axes().map((_, k) => `${fewDigits(one.box[k] ?? 0, 6)} to ${fewDigits(one.box[k + d] ?? 0, 6)}`);
    const cells = [one.zone || sides.join(", "), many(one.answer.estimate), `${many(one.answer.low)} to ${many(one.answer.high)}`];
    row.append(...cells.map((text) => Object.assign(document.createElement("td"), { textContent: text })));
    return row;
  });
  get("kept").querySelector("tbody")!.replaceChildren(...rows.reverse());
}

/** The columns of `veilmap query --format csv`, and some more. */
function csv(): string {
  const quoted = (text: string): string => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  // No formula for a spreadsheet, as in csv_cells.py: not at the beginning, nor behind what may end a cell.
  const plain = (name: string): string => {
    const text = name.replaceAll(/(;\s*|(?<=\S)\t\s*)(?=[=+\-@＝＋－＠])/g, "$1'");
    return /^(\s|\p{C})*[=+\-@＝＋－＠]|^[\t\r\n]/u.test(text) ? `'${text}` : text;
  };
  const sides = ["low", "high"].flatMap((end) => axes().map((axis) => plain(`${axis.name}_${end}`)));
  const named = info.zones ? ["zone"] : [];
  const header = [...named, ...sides, "estimate", "stderr", "low", "high", "confidence", "private"];
  const rows = kept.map(({ zone: name, box: of, answer, confidence: sure }) => [
    ...(info.zones ? [plain(name)] : []),
    ...sides.map((_, k) => of[k] ?? ""),
    ...[answer.estimate, answer.stderr, answer.low, answer.high, sure],
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

/** What is in the address stays there while the map is on its way. */
const place = (): address.Place => ({ view: map ? map.view() : address.read(axes().length).view, box, zone });

async function startMap(of: api.Drawn, view: address.View | null): Promise<void> {
  get("stage").hidden = false;
  if (!hasWebGL()) {
    get("no-webgl").hidden = false;
    for (const id of ["tools", "credit", "map", "keys"]) get(id).hidden = true;
    get("stage").classList.add("blind");
    return;
  }
  const [{ Map: MapOf }, base] = await Promise.all([import("./map"), api.baseMap()]);
  const made = new MapOf(get("map"), of, axes(), info.stamp, theme(), view, base, {
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
  showLegend(of.legend);
  onTheme(() => showLegend(of.legend));
}

function setDrawing(on: boolean): void {
  map?.setDrawing(on);
  get("draw").setAttribute("aria-pressed", `${on}`);
}

function showLegend({ low, high, unit, colours }: api.Legend): void {
  get("legend").hidden = false;
  let per = 1; // so that numbers are not all behind the point
  while (unit === "km²" && low * per < 0.5 && per < 1e6) per *= 100;
  const area = per > 1 ? `${per.toLocaleString("en")} ${unit}` : unit;
  get("legend").querySelector("figcaption")!.textContent = `Points per ${area}, log scale`;
  get("ramp").style.background = `linear-gradient(to right, ${colours[theme()].join(", ")})`;
  const middle = Math.sqrt(low * high);
  get("ticks").replaceChildren(
    ...[low, middle, high].map((value) => Object.assign(document.createElement("span"), { textContent: brief(value * per) })),
  );
}

// The beginning

async function start(): Promise<void> {
  startTheme(get<HTMLButtonElement>("theme"));
  info = await api.info();
  document.title = `${info.name} · veilmap explore`;
  get("name").textContent = info.name;
  get("facts").textContent = `${info.method}, ${info.leaves.toLocaleString("en")} cells, ${axes().map((axis) => axis.name).join(" × ")}`;
  get("epsilon").textContent = info.private ? `ε = ${info.epsilon}${info.delta ? `, δ = ${info.delta}` : ""}.` : "Not private.";
  const statement = info.statement.replace(/^NOT PRIVATE\. /, ""); // which stands before it
  get("statement").textContent = statement;
  get("alarm").hidden = info.private;
  get("alarm").querySelector("span")!.textContent = statement;
  if (info.map) drawn = info.map.axes.map((name) => axes().findIndex((axis) => axis.name === name)) as [number, number];
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
    kept = [];
    listKept();
  });
  document.body.classList.toggle("flat", !info.map);
  get("keys").hidden = !info.map;
  if (info.zones) await loadZones();
  const said = address.read(axes().length);
  restore(said); // people read the answer while the map is on its way
  if (info.map) await startMap(info.map, said.view);
  address.onChange(() => restore(address.read(axes().length)));
  document.body.dataset["ready"] = "yes";
}

function restore(said: address.Place): void {
  if (said.view) map?.go(said.view);
  if (said.zone !== null && said.zone < zones.length) setZone(said.zone, true);
  else setBox(said.box, true);
}

start().catch((error: unknown) => {
  fault(error instanceof api.Refused ? error.message : "The page could not start: is veilmap explore still running?");
  console.error(error);
});
