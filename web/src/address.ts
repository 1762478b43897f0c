// The view and the box in the address, so that they can be bookmarked and shared: #map=5.2/39.5/-113.9&box=-120,45,-119,46

export type View = { zoom: number; lat: number; lng: number };
export type Place = { view: View | null; box: number[] | null; zone: number | null };

export function read(axes: number): Place {
  const parameters = new URLSearchParams(location.hash.slice(1));
  const view = numbers(parameters.get("map"), "/", 3);
  const zone = parameters.get("zone");
  return {
    view: view && Math.abs(view[1]!) <= 90 ? { zoom: view[0]!, lat: view[1]!, lng: view[2]! } : null, // MapLibre throws on other latitudes
    box: numbers(parameters.get("box"), ",", 2 * axes),
    zone: zone !== null && /^\d{1,7}$/.test(zone) ? Number(zone) : null,
  };
}

function numbers(text: string | null, separator: string, length: number): number[] | null {
  const values = text?.split(separator).map((part) => (part.trim() === "" ? NaN : Number(part)));
  return values?.length === length && values.every(Number.isFinite) ? values : null;
}

let last = "";

export function write(place: Place): void {
  const parts = [];
  if (place.view) parts.push(`map=${place.view.zoom.toFixed(2)}/${place.view.lat.toFixed(5)}/${place.view.lng.toFixed(5)}`);
  if (place.box) parts.push(`box=${place.box.join(",")}`);
  if (place.zone !== null) parts.push(`zone=${place.zone}`);
  last = parts.length ? `#${parts.join("&")}` : "";
  if (location.hash !== last) history.replaceState(null, "", last || location.pathname);
}

/** Call back when the user or a link changes the address. */
export function onChange(then: () => void): void {
  addEventListener("hashchange", () => {
    if (location.hash !== last) then();
  });
}
