/** How to let a model answer, in one sentence. */
export function ChooseModel() {
  return (
    <p class="note">
      Rules answer here, without a model. To use a model, set <code>model</code> in <code>etude.toml</code> (or the variable <code>ETUDE_MODEL</code>), for example to <code>openai:gpt-5</code> or <code>ollama:qwen3</code>, and start the server again:{" "}
      <a href="https://github.com/etude-data/etude/blob/main/docs/models.md" target="_blank" rel="noopener noreferrer">models and keys</a>.
    </p>
  );
}
