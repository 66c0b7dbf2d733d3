// The HTTP API: one function that sends a request, and errors as the server words them.

import { signal } from "@preact/signals";
import type { Problem, Session } from "./types";

/** An error of the API, or of the connection to it. */
export class ApiError extends Error {
  constructor(
    readonly problem: Problem,
    readonly status: number,
  ) {
    super(problem.detail ?? problem.title ?? `The server answered ${status}.`);
  }

  get hint(): string {
    return this.problem.hint ?? "";
  }
}

export const session = signal<Session | null>(null);
/** Whether the last request reached the server. */
export const online = signal(true);

export type Method = "GET" | "POST" | "PATCH" | "DELETE";

export async function call<T>(method: Method, path: string, body?: unknown, abort?: AbortSignal): Promise<T> {
  const response = await send(method, path, body, { Accept: "application/json" }, abort);
  return (response.status === 204 ? null : await response.json()) as T;
}

export async function text(path: string, accept = "text/plain"): Promise<string> {
  return await (await send("GET", path, undefined, { Accept: accept })).text();
}

/** Send a form with files. The browser writes the content type, with the border between the parts. */
export async function upload<T>(path: string, form: FormData, abort?: AbortSignal): Promise<T> {
  return (await (await send("POST", path, form, { Accept: "application/json" }, abort)).json()) as T;
}

async function send(
  method: Method,
  path: string,
  body: unknown,
  headers: Record<string, string>,
  abort?: AbortSignal,
): Promise<Response> {
  const form = body instanceof FormData;
  if (body !== undefined && !form) headers["Content-Type"] = "application/json";
  const csrf = session.value?.csrf;
  if (csrf && method !== "GET") headers["X-CSRF-Token"] = csrf;
  let response: Response;
  try {
    const init: RequestInit = { method, headers, signal: abort ?? null };
    if (body !== undefined) init.body = form ? body : JSON.stringify(body);
    response = await fetch(`/api${path}`, init);
  } catch (error) {
    if (abort?.aborted) throw error;
    online.value = false;
    const detail = "The server cannot be reached. What was sent before is kept; this page reconnects by itself.";
    throw new ApiError({ detail, hint: "Check that `etude serve` runs." }, 0);
  }
  online.value = true;
  if (!response.ok) throw new ApiError(await problemOf(response), response.status);
  return response;
}

async function problemOf(response: Response): Promise<Problem> {
  if (response.status === 401 && session.value) session.value = { ...session.value, role: null };
  try {
    return (await response.json()) as Problem;
  } catch {
    return { detail: `The server answered ${response.status} ${response.statusText}.` };
  }
}

export async function openSession(): Promise<void> {
  session.value = await call<Session>("GET", "/session");
}

/** May the person do what needs this role? The server decides; this only keeps buttons honest. */
export function may(role: "analyst" | "admin"): boolean {
  const own = session.value?.role;
  return own === "admin" || own === role;
}

/** Whether the key belongs to a text that a person writes. Parts of an editor are hidden from listeners of the page. */
export function isTyping(event: Event): boolean {
  return event.target instanceof Element && event.target.closest("input, textarea, select, [data-editor]") !== null;
}

/** The request as a curl command and as Python, to copy. */
export function asCode(method: Method, path: string, body?: unknown): { curl: string; python: string } {
  const url = `${location.origin}/api${path}`;
  const key = session.value?.keys ? ` -H "Authorization: Bearer $ETUDE_KEY"` : "";
  if (body instanceof FormData) return formAsCode(url, key, body);
  const json = body === undefined ? "" : JSON.stringify(body);
  const quoted = json.replaceAll("'", `'\\''`);
  const curl =
    `curl${method === "GET" ? "" : ` -X ${method}`} '${url}'${key}` +
    (body === undefined ? "" : ` -H 'Content-Type: application/json' -d '${quoted}'`);
  const auth = session.value?.keys ? `, headers={"Authorization": f"Bearer {os.environ['ETUDE_KEY']}"}` : "";
  const given = body === undefined ? "" : `, json=json.loads(${JSON.stringify(json)})`;
  const imports = ["httpx", ...(given ? ["json"] : []), ...(auth ? ["os"] : [])].sort().map((name) => `import ${name}`);
  const python = `${imports.join("\n")}\n\nprint(httpx.${method.toLowerCase()}(${JSON.stringify(url)}${given}${auth}).json())`;
  return { curl, python };
}

function formAsCode(url: string, key: string, form: FormData): { curl: string; python: string } {
  const file = form.get("file");
  const name = file instanceof File ? file.name : "FILE";
  const auth = session.value?.keys ? `, headers={"Authorization": f"Bearer {os.environ['ETUDE_KEY']}"}` : "";
  const curl = `curl '${url}'${key} -F 'file=@${name.replaceAll("'", `'\\''`)}'`;
  const python = `import httpx${auth ? "\nimport os" : ""}\n\nwith open(${JSON.stringify(name)}, "rb") as file:\n    print(httpx.post(${JSON.stringify(url)}, files={"file": file}${auth}).json())`;
  return { curl, python };
}
