import { useState } from "preact/hooks";
import { asCode, type Method } from "../api";

/** A button that copies text and says so. */
export function Copy({ text, children }: { text: string | (() => string | Promise<string>); children: string }) {
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
    <button type="button" class="link" onClick={copy} aria-live="polite">
      {said || children}
    </button>
  );
}

/** The same request as a command and as Python. */
export function CopyRequest({ method, path, body }: { method: Method; path: string; body?: unknown }) {
  return (
    <>
      <Copy text={() => asCode(method, path, body).curl}>Copy as curl</Copy>
      <Copy text={() => asCode(method, path, body).python}>Copy as Python</Copy>
    </>
  );
}
