// The conversations, newest first, grouped by day.

import { useState } from "preact/hooks";
import { may } from "../../api";
import { period } from "../../format";
import { link } from "../../router";
import type { Thread } from "../../types";

interface Props {
  threads: Thread[];
  current: string | null;
  onRemove: (id: string) => Promise<boolean>;
}

export function Threads({ threads, current, onRemove }: Props) {
  const groups = new Map<string, Thread[]>();
  for (const thread of threads) {
    const name = period(thread.updated_at);
    groups.set(name, [...(groups.get(name) ?? []), thread]);
  }
  return (
    <aside class="threads" aria-label="Threads">
      <div class="acts">
        <a class="button" href={link("ask")}>New thread</a>
        <kbd>Alt N</kbd>
      </div>
      {[...groups].map(([name, members]) => (
        <section key={name} aria-label={name}>
          <h3>{name}</h3>
          <ol>
            {members.map((thread) => <Item key={thread.id} thread={thread} here={thread.id === current} onRemove={onRemove} />)}
          </ol>
        </section>
      ))}
      {threads.length === 0 && <p class="note">Your conversations will be listed here.</p>}
    </aside>
  );
}

function Item({ thread, here, onRemove }: { thread: Thread; here: boolean; onRemove: Props["onRemove"] }) {
  const [asking, setAsking] = useState(false);
  return (
    <li class={here ? "here" : ""}>
      <a href={link("ask", thread.id)} aria-current={here ? "page" : undefined}>{thread.title}</a>
      <span class="sub">
        <small>{thread.source}</small>
        {may("analyst") && !asking && <button type="button" class="link" aria-label={`Remove the thread ${thread.title}`} onClick={() => setAsking(true)}>Remove</button>}
      </span>
      {asking && (
        <div class="sure" role="alertdialog" aria-label="Remove this thread?">
          <small>Its messages go; its runs and their results stay.</small>
          <span class="acts">
            <button type="button" class="halt" autoFocus onClick={() => void onRemove(thread.id).then((done) => !done && setAsking(false))}>Remove it</button>
            <button type="button" onClick={() => setAsking(false)}>Keep</button>
          </span>
        </div>
      )}
    </li>
  );
}
