// Where a question, a query or a cell is written. Stop is always in the same place; sending while it works steers.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { call, may } from "../../api";
import { CodeEditor } from "../../parts/code_editor";
import type { OpenEditor } from "../../parts/code_editor_view";
import { useLoaded } from "../../parts/loading";
import type { Dataset, SourceSchema } from "../../types";

export type Language = "words" | "sql" | "python";
const NAMES: Record<Language, string> = { words: "Words", sql: "SQL", python: "Python" };
const PREFIX: Record<Language, string> = { words: "", sql: "SQL: ", python: "PYTHON: " };

export interface Draft {
  text: string;
  language: Language;
}

interface Props {
  working: boolean;
  datasets: Dataset[];
  dataset: string | null;
  onDataset: (dataset: string) => void;
  draft: Draft;
  setDraft: (draft: Draft) => void;
  onSend: (text: string) => Promise<boolean>;
  onSteer: (text: string) => Promise<boolean>;
  onStop: () => void;
}

export function Composer({ working, datasets, dataset, onDataset, draft, setDraft, onSend, onSteer, onStop }: Props) {
  const box = useRef<HTMLTextAreaElement>(null);
  const [editor, setEditor] = useState<OpenEditor | null>(null);
  const code = draft.language !== "words";
  const schema = useLoaded(
    async (abort) => (code && dataset ? await call<SourceSchema>("GET", `/datasets/${encodeURIComponent(dataset)}/schema`, undefined, abort) : null),
    [code, dataset],
  );
  const tables = useMemo(() => Object.fromEntries((schema.data?.tables ?? []).map((table) => [table.name, table.columns.map((column) => column.name)])), [schema.data]);
  useEffect(() => {
    if (code) void import("../../parts/code_editor_view").then(({ openEditor }) => setEditor(() => openEditor), () => undefined);
  }, [code]);
  const [sending, setSending] = useState(false);
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    element.style.height = "auto";
    element.style.height = `${Math.min(element.scrollHeight, 320)}px`;
  }, [draft.text]);
  const allowed = may("analyst");
  const send = async () => {
    const text = draft.text.trim();
    if (!text || sending) return;
    setSending(true);
    const sent = working ? await onSteer(text) : await onSend(PREFIX[draft.language] + text);
    setSending(false);
    if (sent) setDraft({ ...draft, text: "" });
    box.current?.focus(); // an editor keeps its focus
  };
  const key = (event: KeyboardEvent) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing && (draft.language === "words" || event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      void send();
    } else if (event.key === "Escape" && working) {
      event.preventDefault();
      onStop();
    }
  };
  const label = working ? "Add a direction while it works" : draft.language === "words" ? "Ask about your data" : `${NAMES[draft.language]} to run`;
  return (
    <form class="composer" onSubmit={(event) => { event.preventDefault(); void send(); }}>
      <div class="box">
        {code && editor && allowed ? (
          <CodeEditor open={editor} language={draft.language as "sql" | "python"} dialect={schema.data?.dialect ?? ""} tables={tables} text={draft.text}
            label={`${NAMES[draft.language]} to run`} focused={(document.activeElement?.closest(".composer") ?? null) !== null}
            onText={(text) => setDraft({ ...draft, text })} onRun={() => void send()} onEscape={() => working && onStop()} />
        ) : <><label class="away" for="composer">{label}</label>
        <textarea id="composer" ref={box} rows={1} class={draft.language === "words" ? "" : "mono"} placeholder={allowed ? label : "Your key may read, not ask"}
          disabled={!allowed} value={draft.text} spellcheck={draft.language === "words"}
          onInput={(event) => setDraft({ ...draft, text: event.currentTarget.value })} onKeyDown={key} /></>}
        <div class="acts">
          <span class="seg" role="group" aria-label="Language">
            {(Object.keys(NAMES) as Language[]).map((language) => (
              <button type="button" key={language} aria-pressed={draft.language === language} onClick={() => setDraft({ ...draft, language })}>
                {NAMES[language]}
              </button>
            ))}
          </span>
          {datasets.length > 0 && (
            <select class="quiet" aria-label="Data" value={dataset ?? ""} onChange={(event) => onDataset(event.currentTarget.value)}>
              {datasets.map((known) => <option key={known.id} value={known.id}>{known.id}</option>)}
            </select>
          )}
          <span class="push note keys">{working ? <><kbd>Esc</kbd> stops</> : draft.language === "words" ? <><kbd>Enter</kbd> sends</> : <><kbd>Ctrl Enter</kbd> runs</>}</span>
          {working && <button type="button" class="halt" onClick={onStop}>Stop</button>}
          <button type="submit" class="do" disabled={!allowed || sending || !draft.text.trim()}>
            {working ? "Steer" : draft.language === "words" ? "Ask" : "Run"}
          </button>
        </div>
      </div>
    </form>
  );
}
