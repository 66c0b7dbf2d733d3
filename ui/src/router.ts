// Where the page is: the part of the address after `#`, so that every view has a link and the API keeps its paths.

import { signal } from "@preact/signals";

export interface Place {
  path: string[];
  query: URLSearchParams;
}

export const place = signal<Place>(read());

function read(): Place {
  const [path = "", query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  return { path: path.split("/").filter(Boolean).map(decodeURIComponent), query: new URLSearchParams(query) };
}

addEventListener("hashchange", () => {
  place.value = read();
});

export function link(...parts: (string | Record<string, string | null | undefined>)[]): string {
  const path: string[] = [];
  const query = new URLSearchParams();
  for (const part of parts) {
    if (typeof part === "string") path.push(encodeURIComponent(part));
    else for (const [name, value] of Object.entries(part)) if (value) query.set(name, value);
  }
  const asked = query.toString();
  return `#/${path.join("/")}${asked ? `?${asked}` : ""}`;
}

export function go(address: string, replace = false): void {
  if (!replace) {
    location.hash = address;
    return;
  }
  history.replaceState(null, "", address);
  place.value = read();
}
