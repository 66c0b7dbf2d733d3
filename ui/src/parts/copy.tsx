import { useState } from "preact/hooks";
import { asCode, type Method } from "../api";

/** A button that copies text and says so. */
export function Copy({ text, label, children }: { text: string | (() => string | Promise<string>); label?: string; children: string }) {
  const [said, setSaid] = useState("");
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(typeof text === "string" ? text : await text());
      setSaid("Copied");
    } catch {
      setSaid("Not copied: the browser refused");
    }
    setTimeout(() => setSaid(""), 1500);
  };
  return (
    <button type="button" class="link" onClick={copy} aria-live="polite" aria-label={said ? undefined : label} title={label}>
      {said || children}
    </button>
  );
}

/** The same request as a command and as Python. */
export function CopyRequest({ method, path, body }: { method: Method; path: string; body?: unknown }) {
  return (
    <span class="copy-as">
      Copy as
      <Copy text={() => asCode(method, path, body).curl} label="Copy as curl">curl</Copy>
      <Copy text={() => asCode(method, path, body).python} label="Copy as Python">Python</Copy>
    </span>
  );
}
