// The rows of a result as pages from the server: loaded when they are looked at, the last fifty kept.

import { call } from "../api";
import type { RowPage } from "../types";

export const PAGE = 200;
const KEPT = 50;

export interface View {
  sort: string[];
  filter: string[];
}

export class GridPages {
  private readonly pages = new Map<number, RowPage>();
  private readonly asked = new Map<number, AbortController>();
  rowCount: number | null = null;

  constructor(
    private readonly path: string,
    private readonly view: View,
    private readonly onChange: (error?: unknown) => void,
  ) {}

  row(index: number): unknown[] | null {
    const page = this.pages.get(Math.floor(index / PAGE));
    return page?.rows[index % PAGE] ?? null;
  }

  /** Load the pages of these rows; requests for pages that are no longer looked at are dropped. */
  look(from: number, to: number): void {
    const wanted = new Set<number>();
    for (let page = Math.floor(from / PAGE); page <= Math.floor(Math.max(from, to) / PAGE); page += 1) wanted.add(page);
    for (const [page, request] of this.asked) {
      if (wanted.has(page)) continue;
      request.abort();
      this.asked.delete(page);
    }
    for (const page of wanted) if (!this.pages.has(page) && !this.asked.has(page)) void this.load(page);
  }

  address(): string {
    const query = new URLSearchParams();
    for (const column of this.view.sort) query.append("sort", column);
    for (const condition of this.view.filter) query.append("filter", condition);
    const asked = query.toString();
    return asked ? `${this.path}${this.path.includes("?") ? "&" : "?"}${asked}` : this.path;
  }

  /** The address of all these rows as a file. */
  file(format: "csv" | "parquet"): string {
    const address = this.address();
    return `/api${address}${address.includes("?") ? "&" : "?"}format=${format}`;
  }

  close(): void {
    for (const request of this.asked.values()) request.abort();
  }

  private async load(page: number): Promise<void> {
    const request = new AbortController();
    this.asked.set(page, request);
    const address = this.address();
    const separator = address.includes("?") ? "&" : "?";
    try {
      const rows = await this.read(`${address}${separator}limit=${PAGE}&offset=`, page * PAGE, request.signal);
      this.rowCount = rows.row_count;
      this.pages.set(page, rows);
      const oldest = this.pages.keys().next().value;
      if (this.pages.size > KEPT && oldest !== undefined) this.pages.delete(oldest);
      this.onChange();
    } catch (error) {
      if (!request.signal.aborted) this.onChange(error);
    } finally {
      if (this.asked.get(page) === request) this.asked.delete(page);
    }
  }

  /** A page with large values ends early: its rest is read with further requests. */
  private async read(address: string, offset: number, abort: AbortSignal): Promise<RowPage> {
    const first = await call<RowPage>("GET", address + offset, undefined, abort);
    let rows = first.rows;
    while (rows.length < PAGE && offset + rows.length < first.row_count) {
      const more = await call<RowPage>("GET", address + (offset + rows.length), undefined, abort);
      if (more.rows.length === 0) break;
      rows = rows.concat(more.rows.slice(0, PAGE - rows.length));
    }
    return { ...first, rows };
  }
}
