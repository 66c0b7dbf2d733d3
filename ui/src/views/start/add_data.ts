// Bring data in: files that are dropped, chosen or pasted, a database by its URL, and the sample shop.

import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError, call, upload } from "../../api";

export interface AddedTable {
  name: string;
  rows: number | null;
  columns: { name: string; type: string }[];
}

/** What the server made of a file or a URL. */
export interface Added {
  name: string;
  tables: AddedTable[];
  notes: string[];
}

export interface Adding {
  /** What is being added now, in words. */
  busy: string | null;
  added: Added[];
  error: ApiError | null;
  addFiles: (files: Iterable<File>) => Promise<void>;
  addUrl: (url: string) => Promise<void>;
  addShop: () => Promise<void>;
}

/** Add data, one after the other, and call `onAdded` after each. */
export function useAdding(onAdded: (added: Added) => void): Adding {
  const [busy, setBusy] = useState<string | null>(null);
  const [added, setAdded] = useState<Added[]>([]);
  const [error, setError] = useState<ApiError | null>(null);
  const add = async (what: string, work: () => Promise<Added>): Promise<void> => {
    setBusy(what);
    setError(null);
    try {
      const made = await work();
      setAdded((before) => [made, ...before.filter((other) => other.name !== made.name)]);
      onAdded(made);
    } catch (failed) {
      setError(failed instanceof ApiError ? failed : new ApiError({ detail: String(failed) }, 0));
    } finally {
      setBusy(null);
    }
  };
  return {
    busy,
    added,
    error,
    addFiles: async (given) => {
      const files = [...given];
      const name = files.length === 1 ? files[0]?.name : `${files.length} files`;
      if (files.length > 0) await add(`Reading ${name}`, () => upload<Added>("/datasets", formOf(files)));
    },
    addUrl: (url) => add("Connecting", () => call<Added>("POST", "/datasets/connect", { url })),
    addShop: () => add("Opening the shop", () => call<Added>("POST", "/datasets/shop")),
  };
}

/** Files that come together become one dataset. */
export function formOf(files: File[]): FormData {
  const form = new FormData();
  for (const file of files) form.append("file", file);
  return form;
}

/** Take files that are dropped anywhere on the page. Returns whether files are held over it now. */
export function useFileDrop(onFiles: (files: File[]) => void, allowed: boolean): boolean {
  const [over, setOver] = useState(false);
  const latest = useRef(onFiles);
  latest.current = onFiles;
  useEffect(() => {
    if (!allowed) return;
    let depth = 0; // entering a child leaves its parent, so only the outermost leave counts
    const holdsFiles = (event: DragEvent) => event.dataTransfer?.types.includes("Files") ?? false;
    const enter = (event: DragEvent) => {
      if (!holdsFiles(event)) return;
      depth += 1;
      setOver(true);
    };
    const leave = () => {
      depth = Math.max(0, depth - 1);
      if (depth === 0) setOver(false);
    };
    const hold = (event: DragEvent) => holdsFiles(event) && event.preventDefault();
    const drop = (event: DragEvent) => {
      if (!holdsFiles(event)) return;
      event.preventDefault();
      depth = 0;
      setOver(false);
      latest.current([...(event.dataTransfer?.files ?? [])]);
    };
    addEventListener("dragenter", enter);
    addEventListener("dragleave", leave);
    addEventListener("dragover", hold);
    addEventListener("drop", drop);
    return () => {
      removeEventListener("dragenter", enter);
      removeEventListener("dragleave", leave);
      removeEventListener("dragover", hold);
      removeEventListener("drop", drop);
    };
  }, [allowed]);
  return over;
}

/** Rows that were copied from a spreadsheet or a text, as a file; null if the text is not a table. */
export function pastedRows(text: string): File | null {
  const lines = text.split(/\r?\n/).filter((line) => line.trim());
  if (lines.length < 2) return null;
  const separator = ["\t", ",", ";"].find((mark) => {
    const parts = (lines[0] as string).split(mark).length;
    return parts > 1 && lines.every((line) => line.split(mark).length >= parts);
  });
  if (!separator) return null;
  return new File([text], separator === "\t" ? "pasted_rows.tsv" : "pasted_rows.csv", { type: "text/plain" });
}
