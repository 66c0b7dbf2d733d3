/** The repeat sign. It means one thing: played again, without a model. */
export function RepeatSign() {
  return (
    <svg class="rep" viewBox="0 0 16 16" aria-hidden="true">
      <path d="M2 1h2.6v14H2zM6 1h1.1v14H6z" />
      <circle cx="10.6" cy="5.4" r="1.5" />
      <circle cx="10.6" cy="10.6" r="1.5" />
    </svg>
  );
}
