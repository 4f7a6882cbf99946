/** Asks for the token when the server wants one. It stays in this tab. */
import { useState } from "preact/hooks";
import { keepToken } from "../ask";

export function Login({ onDone }: { onDone: () => void }) {
  const [token, setToken] = useState("");
  const submit = (event: Event) => {
    event.preventDefault();
    keepToken(token.trim());
    onDone();
  };
  return (
    <main class="login" id="main">
      <form class="panel" onSubmit={submit}>
        <h1>This server wants a token</h1>
        <p class="about">It was given to `gpuwhy dashboard` when it was started. It is kept in this tab only.</p>
        <label>
          Token
          <input
            type="password"
            autocomplete="off"
            value={token}
            onInput={(event) => setToken(event.currentTarget.value)}
            required
          />
        </label>
        <button type="submit" class="primary">
          Continue
        </button>
      </form>
    </main>
  );
}
