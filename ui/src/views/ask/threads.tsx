// The conversations, newest first, grouped by day.

import { period } from "../../format";
import { link } from "../../router";
import type { Thread } from "../../types";

export function Threads({ threads, current }: { threads: Thread[]; current: string | null }) {
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
            {members.map((thread) => (
              <li key={thread.id} class={thread.id === current ? "here" : ""}>
                <a href={link("ask", thread.id)} aria-current={thread.id === current ? "page" : undefined}>{thread.title}</a>
                {thread.source && <small>{thread.source}</small>}
              </li>
            ))}
          </ol>
        </section>
      ))}
      {threads.length === 0 && <p class="note">Your conversations will be listed here.</p>}
    </aside>
  );
}
