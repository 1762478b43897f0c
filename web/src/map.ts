// The map: density tiles from the server, coasts and borders, zones, and a box that the user can draw.

import {
  type GeoJSONSource,
  type MapMouseEvent,
  Map as MapLibre,
  MercatorCoordinate,
  NavigationControl,
  type RasterTileSource,
  ScaleControl,
  type StyleSpecification,
  setWorkerUrl,
} from "maplibre-gl";

import type { Axis, Drawn, Theme } from "./api";
import type { View } from "./address";
import { roundTo, stepFor } from "./words";

type Point = [number, number];
type Box = { low: Point; high: Point }; // in the release's own coordinates

const INK: Record<Theme, Record<string, string>> = {
  light: { water: "#e6ecee", land: "#f8f8f5", line: "#8b979b", faint: "#b9c2c4", domain: "#6b777b", box: "#c2410c", zone: "#7c3aed" },
  dark: { water: "#0b1318", land: "#151f25", line: "#5b6b73", faint: "#38464d", domain: "#7d8b92", box: "#ffb224", zone: "#c4a7ff" },
};
const NO_FEATURES: GeoJSON.FeatureCollection = { type: "FeatureCollection", features: [] };
const MAX_MERCATOR_LATITUDE = 85.051128; // degrees
const ANIMATION = { animate: !matchMedia("(prefers-reduced-motion: reduce)").matches };

export type Events = {
  drawn: (box: Box, done: boolean) => void;
  moved: (view: View) => void;
  picked: (zone: number) => void;
  keyed: (by: Point, grow: number) => void;
};

export class Map {
  private readonly map: MapLibre;
  private readonly x: Axis;
  private readonly y: Axis;
  drawing = false;

  constructor(
    container: HTMLElement,
    private readonly drawn: Drawn,
    axes: Axis[],
    private readonly stamp: string,
    theme: Theme,
    view: View | null,
    base: GeoJSON.FeatureCollection,
    private readonly events: Events,
  ) {
    setWorkerUrl("/static/maplibre-worker.js");
    [this.x, this.y] = drawn.axes.map((name) => axes.find((axis) => axis.name === name)!) as [Axis, Axis];
    const place = view ? { center: [view.lng, view.lat] as Point, zoom: view.zoom } : { bounds: this.bounds() };
    this.map = new MapLibre({
      container,
      style: this.style(theme, base),
      ...place,
      fitBoundsOptions: { padding: 24 },
      maxZoom: drawn.most_zoom,
      attributionControl: false,
      renderWorldCopies: false,
      dragRotate: false,
      pitchWithRotate: false,
      touchPitch: false,
      boxZoom: false, // Shift + drag draws a box instead
      fadeDuration: 0,
    });
    this.map.touchZoomRotate.disableRotation();
    this.map.keyboard.disableRotation();
    this.map.addControl(new NavigationControl({ showCompass: false }), "top-right");
    if (drawn.globe) this.map.addControl(new ScaleControl(), "bottom-right");
    this.map.getCanvas().setAttribute("aria-label", "Density map. Arrow keys move it; plus and minus zoom.");
    this.map.on("moveend", () => this.events.moved(this.view()));
    this.map.once("idle", () => (document.body.dataset["drawn"] = "yes"));
    this.map.on("click", "zones", (event) => {
      const zone = event.features?.[0]?.id;
      if (!this.drawing && typeof zone === "number") this.events.picked(zone);
    });
    this.map.on("mousemove", (event) => this.cursor(event));
    this.listen(this.map.getCanvasContainer());
  }

  ready(): Promise<void> {
    return new Promise((resolve) => this.map.once("style.load", () => resolve()));
  }

  view(): View {
    const { lng, lat } = this.map.getCenter();
    return { zoom: this.map.getZoom(), lat, lng };
  }

  go(view: View): void {
    this.map.jumpTo({ center: [view.lng, view.lat], zoom: view.zoom });
  }

  home(): void {
    this.map.fitBounds(this.bounds(), { padding: 24, ...ANIMATION });
  }

  /** Move the map if a zone is not completely visible. */
  show(geometry: GeoJSON.Geometry | null): void {
    const places = geometry && "coordinates" in geometry ? (geometry.coordinates.flat(Infinity) as number[]) : [];
    if (!places.length) return;
    const [x, y] = [places.filter((_, k) => k % 2 === 0), places.filter((_, k) => k % 2 === 1)];
    const least = (of: number[]): number => of.reduce((a, b) => Math.min(a, b));
    const most = (of: number[]): number => of.reduce((a, b) => Math.max(a, b));
    const ends: [Point, Point] = [this.degrees([least(x), least(y)]), this.degrees([most(x), most(y)])];
    const seen = this.map.getBounds();
    if (!seen.contains(ends[0]) || !seen.contains(ends[1])) this.map.fitBounds(ends, { padding: 60, ...ANIMATION });
  }

  /** The part of the domain that is visible. */
  seen(): Box {
    const bounds = this.map.getBounds();
    const [a, b] = [this.there(bounds.getSouthWest()), this.there(bounds.getNorthEast())];
    return { low: a, high: b };
  }

  paint(theme: Theme): void {
    const { map } = this;
    const tiles = map.getSource<RasterTileSource>("density");
    if (!tiles) return;
    tiles.setTiles([this.tiles(theme)]);
    for (const layer of this.style(theme, NO_FEATURES).layers) {
      for (const [name, value] of Object.entries(layer.paint ?? {})) {
        map.setPaintProperty(layer.id, name as Parameters<MapLibre["setPaintProperty"]>[1], value);
      }
    }
  }

  showBox(box: Box | null): void {
    this.map.getSource<GeoJSONSource>("box")?.setData(box ? this.outline(box) : NO_FEATURES);
  }

  showZones(zones: GeoJSON.FeatureCollection): void {
    const placed = zones.features.map((zone, id) => ({ ...zone, id, geometry: this.placed(zone.geometry) }));
    this.map.getSource<GeoJSONSource>("zones")?.setData({ ...zones, features: placed });
  }

  showZone(zone: number | null): void {
    this.map.setFilter("zone", ["==", ["id"], zone ?? -1]);
  }

  setDrawing(on: boolean): void {
    this.drawing = on;
    const { dragPan, touchZoomRotate } = this.map;
    for (const handler of [dragPan, touchZoomRotate]) if (on) handler.disable();
      else handler.enable();
    if (!on) touchZoomRotate.disableRotation();
    this.map.getCanvasContainer().classList.toggle("drawing", on);
  }

  // Conversion between the release's coordinates and the degrees that MapLibre works with

  private degrees([x, y]: Point): Point {
    const { globe, origin, side } = this.drawn;
    if (globe || !origin || !side) return [x, Math.max(-MAX_MERCATOR_LATITUDE, Math.min(MAX_MERCATOR_LATITUDE, y))];
    const { lng, lat } = new MercatorCoordinate((x - origin[0]) / side, (origin[1] - y) / side).toLngLat();
    return [lng, lat];
  }

  private there(place: { lng: number; lat: number }): Point {
    const { globe, origin, side } = this.drawn;
    let [x, y]: Point = [place.lng, place.lat];
    if (!globe && origin && side) {
      const at = MercatorCoordinate.fromLngLat(place);
      [x, y] = [origin[0] + at.x * side, origin[1] - at.y * side];
    }
    return [this.round(x, this.x), this.round(y, this.y)];
  }

  /** Round to about a pixel, and clip to the domain. */
  private round(value: number, axis: Axis): number {
    const square = this.drawn.globe ? 360 : (this.drawn.side ?? 1);
    const step = stepFor(square / (512 * 2 ** this.map.getZoom()));
    return Math.min(axis.hi, Math.max(axis.lo, roundTo(value, step)));
  }

  private placed(geometry: GeoJSON.Geometry): GeoJSON.Geometry {
    const move = (at: unknown): unknown =>
      Array.isArray(at) && typeof at[0] === "number" ? this.degrees(at as Point) : (at as unknown[]).map(move);
    return "coordinates" in geometry ? ({ ...geometry, coordinates: move(geometry.coordinates) } as GeoJSON.Geometry) : geometry;
  }

  private bounds(): [Point, Point] {
    return [this.degrees([this.x.lo, this.y.lo]), this.degrees([this.x.hi, this.y.hi])];
  }

  private outline({ low, high }: Box): GeoJSON.Feature {
    const ring: Point[] = [low, [high[0], low[1]], high, [low[0], high[1]], low];
    return { type: "Feature", properties: {}, geometry: { type: "Polygon", coordinates: [ring.map((at) => this.degrees(at))] } };
  }

  private outside(): GeoJSON.Feature {
    const top = MAX_MERCATOR_LATITUDE;
    const world: Point[] = [[-180, -top], [180, -top], [180, top], [-180, top], [-180, -top]];
    const [[west, south], [east, north]] = this.bounds();
    const hole: Point[] = [[west, south], [west, north], [east, north], [east, south], [west, south]];
    return { type: "Feature", properties: {}, geometry: { type: "Polygon", coordinates: [world, hole] } };
  }

  private tiles(theme: Theme): string {
    return `${location.origin}/tiles/{z}/{x}/{y}.png?theme=${theme}&v=${this.stamp}`;
  }

  // Layers

  private style(theme: Theme, base: GeoJSON.FeatureCollection): StyleSpecification {
    const ink = INK[theme];
    const lines = { ...base, features: base.features.map((one) => ({ ...one, geometry: this.placed(one.geometry) })) };
    const domain = this.outline({ low: [this.x.lo, this.y.lo], high: [this.x.hi, this.y.hi] });
    const line = (id: string, source: string, color: string, width: number, more: object = {}): object => ({
      id,
      type: "line",
      source,
      paint: { "line-color": color, "line-width": width },
      ...more,
    });
    const of = (layer: string): object => ({ filter: ["==", ["get", "layer"], layer] });
    return {
      version: 8,
      sources: {
        base: { type: "geojson", data: lines },
        density: {
          type: "raster",
          tiles: [this.tiles(theme)],
          tileSize: 512,
          maxzoom: this.drawn.most_zoom,
          bounds: this.bounds().flat() as [number, number, number, number],
        },
        domain: { type: "geojson", data: domain },
        outside: { type: "geojson", data: this.outside() },
        zones: { type: "geojson", data: NO_FEATURES },
        box: { type: "geojson", data: NO_FEATURES },
      },
      layers: [
        { id: "water", type: "background", paint: { "background-color": this.drawn.globe ? ink["water"] : ink["land"] } },
        { id: "land", type: "fill", source: "base", ...of("land"), paint: { "fill-color": ink["land"] } },
        {
          id: "density",
          type: "raster",
          source: "density",
          paint: { "raster-opacity": 0.92, "raster-resampling": "nearest", "raster-fade-duration": 0 },
        },
        line("states", "base", ink["faint"]!, 0.7, of("states")),
        line("borders", "base", ink["line"]!, 0.9, of("borders")),
        line("coast", "base", ink["line"]!, 0.9, of("coast")),
        { id: "outside", type: "fill", source: "outside", paint: { "fill-color": ink["water"], "fill-opacity": 0.55 } },
        line("domain", "domain", ink["domain"]!, 1),
        { id: "zones", type: "fill", source: "zones", paint: { "fill-color": ink["zone"], "fill-opacity": 0 } },
        line("zone-lines", "zones", ink["zone"]!, 0.8),
        line("zone", "zones", ink["zone"]!, 3, { filter: ["==", ["id"], -1] }),
        { id: "box", type: "fill", source: "box", paint: { "fill-color": ink["box"], "fill-opacity": 0.08 } },
        line("box-line", "box", ink["box"]!, 2),
      ] as StyleSpecification["layers"],
    };
  }

  private cursor(event: MapMouseEvent): void {
    const over = this.map.getLayer("zones") && this.map.queryRenderedFeatures(event.point, { layers: ["zones"] }).length > 0;
    this.map.getCanvas().style.cursor = this.drawing || event.originalEvent.shiftKey ? "crosshair" : over ? "pointer" : "";
  }

  // Drawing a box, with pointer and keyboard

  private listen(container: HTMLElement): void {
    let start: Point | null = null;
    const here = (event: PointerEvent): Point => {
      const frame = container.getBoundingClientRect();
      return this.there(this.map.unproject([event.clientX - frame.left, event.clientY - frame.top]));
    };
    const box = (from: Point, to: Point): Box => ({
      low: [Math.min(from[0], to[0]), Math.min(from[1], to[1])],
      high: [Math.max(from[0], to[0]), Math.max(from[1], to[1])],
    });
    container.addEventListener(
      "pointerdown",
      (event) => {
        if (event.button !== 0 || !event.isPrimary || !(this.drawing || event.shiftKey)) return;
        start = here(event);
        this.map.dragPan.disable();
        container.setPointerCapture(event.pointerId);
      },
      { capture: true },
    );
    container.addEventListener("pointermove", (event) => {
      if (start) this.events.drawn(box(start, here(event)), false);
    });
    const end = (event: PointerEvent): void => {
      if (!start) return;
      const made = box(start, here(event));
      start = null;
      if (!this.drawing) this.map.dragPan.enable();
      if (made.low[0] < made.high[0] && made.low[1] < made.high[1]) this.events.drawn(made, true);
    };
    container.addEventListener("pointerup", end);
    container.addEventListener("pointercancel", () => (start = null));
    this.map.getCanvas().addEventListener("keydown", (event) => {
      const by = ({ ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] } as Record<string, Point>)[event.key];
      const grow = { "[": -1, "]": 1 }[event.key];
      if (!(by && event.shiftKey) && !grow) return;
      event.preventDefault();
      event.stopPropagation();
      this.events.keyed(by && event.shiftKey ? by : [0, 0], grow ?? 0);
    });
  }
}
