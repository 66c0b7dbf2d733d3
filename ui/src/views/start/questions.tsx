// Questions that work on the data, made from its profile: the server has tried each of them.

import { call } from "../../api";
import { useLoaded } from "../../parts/loading";

export function Questions({ dataset, onAsk }: { dataset: string; onAsk: (text: string) => void }) {
  const loaded = useLoaded(
    async (abort) => (await call<{ questions: string[] }>("GET", `/datasets/${encodeURIComponent(dataset)}/questions`, undefined, abort)).questions,
    [dataset],
  );
  if (!loaded.data || loaded.data.length === 0) return null;
  return (
    <ul class="qs" aria-label={`Questions on ${dataset}`}>
      {loaded.data.map((question) => <li key={question}><button type="button" class="link" onClick={() => onAsk(question)}>{question}</button></li>)}
    </ul>
  );
}
