// Requests to the server, and the types of its replies.

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

/** The server refused a request; the message says why. */
export class Refused extends Error {}

async function request<T>(path: string, options?: RequestInit): Promise<T> {
  const reply = await fetch(path, options);
  const body: unknown = await reply.json();
  if (!reply.ok) throw new Refused((body as { error: string }).error);
  return body as T;
}

export const info = (): Promise<Info> => request("/api/info");
export const zones = (): Promise<GeoJSON.FeatureCollection> => request("/api/zones");
export const baseMap = (): Promise<GeoJSON.FeatureCollection> => request("/basemap.json");

export async function count(
  area: { boxes: number[][] } | { zones: number[] },
  confidence: number,
  signal: AbortSignal,
): Promise<Answer> {
  const body = JSON.stringify({ ...area, confidence });
  const columns = await request<Answers>("/api/count", { method: "POST", body, signal });
  return { estimate: columns.estimate[0]!, stderr: columns.stderr[0]!, low: columns.low[0]!, high: columns.high[0]! };
}

export function histogram(
  axis: string,
  bins: number,
  box: number[],
  [from, to]: [number, number],
  confidence: number,
): Promise<Histogram> {
  const parameters = { axis, bins, box: box.join(","), from, to, confidence };
  const query = new URLSearchParams(Object.entries(parameters).map(([name, value]) => [name, `${value}`]));
  return request(`/api/histogram?${query}`);
}
