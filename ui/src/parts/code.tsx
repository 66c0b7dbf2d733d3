import { useEffect, useMemo, useState } from "preact/hooks";
import { layOutSql } from "./sql_layout";

type Language = "sql" | "python" | "json";

/** Code with colours, and SQL on several lines if it ran as one; the highlighter is loaded when the first code is shown, and plain text is there at once. */
export function Code({ text: given, language }: { text: string; language: Language }) {
  const [exact, setExact] = useState(false);
  const laidOut = useMemo(() => (language === "sql" ? layOutSql(given) : given), [given, language]);
  const text = exact ? given : laidOut;
  const [html, setHtml] = useState<{ of: string; html: string } | null>(null);
  useEffect(() => {
    let left = false;
    import("./highlight").then(({ highlight }) => !left && setHtml({ of: text, html: highlight(text, language) }));
    return () => {
      left = true;
    };
  }, [text, language]);
  return (
    <div class={language === "sql" ? "code sql" : "code"}>
      <pre tabIndex={0}>
        {html?.of === text ? <code dangerouslySetInnerHTML={{ __html: html.html }} /> : <code>{text}</code>}
      </pre>
      {laidOut !== given && <button type="button" class="link" aria-pressed={exact} onClick={() => setExact(!exact)}>As it ran</button>}
    </div>
  );
}
