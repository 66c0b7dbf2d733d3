import { useEffect, useState } from "preact/hooks";

type Language = "sql" | "python" | "json";

/** Code with colours; the highlighter is loaded when the first code is shown, and plain text is there at once. */
export function Code({ text, language }: { text: string; language: Language }) {
  const [html, setHtml] = useState<string | null>(null);
  useEffect(() => {
    let left = false;
    import("./highlight").then(({ highlight }) => !left && setHtml(highlight(text, language)));
    return () => {
      left = true;
    };
  }, [text, language]);
  return (
    <pre tabIndex={0}>
      {html === null ? <code>{text}</code> : <code dangerouslySetInnerHTML={{ __html: html }} />}
    </pre>
  );
}
