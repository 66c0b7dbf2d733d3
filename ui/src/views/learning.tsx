// Learning: the playbooks that agents are shown.

import { call } from "../api";
import { AnswerText } from "../parts/answer_text";
import { Failure, useLoaded, Waiting } from "../parts/loading";
import { link } from "../router";

interface Playbook {
  name: string;
  description: string;
  text: string;
}

export function LearningView({ name }: { name: string | null }) {
  const playbooks = useLoaded(async (abort) => {
    const found = await call<Playbook[] | { items: Playbook[] }>("GET", "/playbooks", undefined, abort);
    return Array.isArray(found) ? found : found.items;
  }, []);
  const items = playbooks.data ?? [];
  const opened = items.find((playbook) => playbook.name === name) ?? items[0] ?? null;
  return (
    <div class="lay">
      <aside class="side" aria-label="Playbooks">
        <h3>Playbooks</h3>
        <ol>{items.map((playbook) => <li key={playbook.name} class={playbook === opened ? "here" : ""}><a href={link("learning", playbook.name)}>{playbook.name}</a></li>)}</ol>
      </aside>
      <main id="content" tabIndex={-1}>
        {playbooks.error && <Failure error={playbooks.error} again={playbooks.reload} />}
        {!playbooks.data && !playbooks.error && <Waiting for="Reading the playbooks" />}
        {playbooks.data && !opened && <><h1>No playbooks yet</h1><p class="lead">A playbook is a lesson for agents: when it applies and what to do. Add one with <code>etude playbooks add</code>.</p></>}
        {opened && <><h1>{opened.name}</h1><p class="lead">{opened.description}</p><div class="skill"><AnswerText text={opened.text} /></div></>}
      </main>
    </div>
  );
}
