// What the server says, and how it is asked.

export type Axis = { name: string; lo: number; hi: number };
export type Theme = "light" | "dark";
export type Answer = { estimate: number; stderr: number; low: number; high: number };
export type Legend = { low: number; high: number; unit: string; colours: Record<Theme, string[]> };
export type Drawn = {
  axes: [string, string];
  globe: boolean;
  origin?: [number, number];
  side?: number;
  legend: Legend;
  most_zoom: number;
};
export type Info = {
  name: string;
  stamp: string;
  domain: { axes: Axis[]; crs: string | null };
  private: boolean;
  epsilon: number;
  delta: number;
  unit: string;
  statement: string;
  method: string;
  height: number;
  leaves: number;
  zones: boolean;
  whole: Answer;
  map?: Drawn;
};
export type Histogram = { axis: string; edges: number[]; estimate: number[]; low: number[]; high: number[] };
type Answers = { [name in keyof Answer]: number[] };

export class Refused extends Error {}

async function ask<T>(path: string, options?: RequestInit): Promise<T> {
  const reply = await fetch(path, options);
  const said: unknown = await reply.json();
  if (!reply.ok) throw new Refused((said as { error: string }).error);
  return said as T;
}

export const info = (): Promise<Info> => ask("/api/info");
export const zones = (): Promise<GeoJSON.FeatureCollection> => ask("/api/zones");
export const baseMap = (): Promise<GeoJSON.FeatureCollection> => ask("/basemap.json");

export async function count(
  where: { boxes: number[][] } | { zones: number[] },
  confidence: number,
  signal: AbortSignal,
): Promise<Answer> {
  const body = JSON.stringify({ ...where, confidence });
  const found = await ask<Answers>("/api/count", { method: "POST", body, signal });
  return { estimate: found.estimate[0]!, stderr: found.stderr[0]!, low: found.low[0]!, high: found.high[0]! };
}

export function histogram(
  axis: string,
  bins: number,
  box: number[],
  [from, to]: [number, number],
  confidence: number,
): Promise<Histogram> {
  const asked = { axis, bins, box: box.join(","), from, to, confidence };
  const query = new URLSearchParams(Object.entries(asked).map(([name, value]) => [name, `${value}`]));
  return ask(`/api/histogram?${query}`);
}
