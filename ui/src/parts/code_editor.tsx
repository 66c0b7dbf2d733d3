// An editor for SQL and Python that completes from the schema. It is loaded when it is first needed; until then, and if
// it cannot be loaded, the plain text box stays.

import { useEffect, useRef } from "preact/hooks";
import type { EditorLanguage, OpenEditor, OpenedEditor } from "./code_editor_view";

export interface CodeEditorProps {
  open: OpenEditor;
  language: EditorLanguage;
  dialect: string;
  /** Tables with their columns, to complete from. */
  tables: Record<string, string[]>;
  text: string;
  label: string;
  focused: boolean;
  onText: (text: string) => void;
  onRun: () => void;
  onEscape: () => void;
}

export function CodeEditor(props: CodeEditorProps) {
  const host = useRef<HTMLDivElement>(null);
  const editor = useRef<OpenedEditor | null>(null);
  /** Texts that the editor told and that have not come back as props: they may come late, and must not undo typing. */
  const reported = useRef<string[]>([]);
  const latest = useRef(props);
  latest.current = props;
  const { open, language, dialect, tables, label, focused } = props;
  useEffect(() => {
    if (!host.current) return;
    const opened = open(host.current, {
      language,
      dialect,
      tables,
      label,
      text: latest.current.text,
      onText: (text) => {
        reported.current.push(text);
        latest.current.onText(text);
      },
      onRun: () => latest.current.onRun(),
      onEscape: () => latest.current.onEscape(),
    });
    editor.current = opened;
    if (focused) opened.focus();
    return () => {
      editor.current = null;
      opened.close();
    };
  }, [language, dialect, tables, label]);
  useEffect(() => {
    const at = reported.current.lastIndexOf(props.text);
    reported.current = reported.current.slice(at + 1);
    if (at < 0) editor.current?.setText(props.text);
  }, [props.text]);
  return <div ref={host} class="editor" data-editor={language} />;
}
