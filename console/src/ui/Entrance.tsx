// Before the first page: what the server is, and who asks.

import { useQuery } from "@tanstack/react-query";
import { type ReactNode, useState, useSyncExternalStore } from "react";

import { hasToken, loadAbout, onToken, signIn } from "../api/client";
import { AboutContext } from "../api/queries";
import { Loading, Problem } from "./parts";

export function Entrance({ children }: { children: ReactNode }) {
  const about = useQuery({ queryKey: ["about"], queryFn: loadAbout, staleTime: Number.POSITIVE_INFINITY, gcTime: Number.POSITIVE_INFINITY });
  const signedIn = useSyncExternalStore(onToken, hasToken);
  if (about.isPending) return <Loading what="Connecting to the server" />;
  if (about.isError) return <Problem error={about.error} what="The server does not answer" />;
  if (about.data.identifies && !signedIn) return <SignIn />;
  return <AboutContext value={about.data}>{children}</AboutContext>;
}

function SignIn() {
  const [text, setText] = useState("");
  const [error, setError] = useState<unknown>(null);
  return (
    <main className="sign-in">
      <h1>Syncpoint</h1>
      <p>This server requires a token.</p>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          setError(null);
          signIn(text).catch((failed: unknown) => setError(failed));
        }}
      >
        <label htmlFor="token">Token</label>
        <textarea id="token" rows={5} value={text} spellCheck={false} autoComplete="off" onChange={(event) => setText(event.target.value)} />
        <p className="hint">
          An access token of your identity provider, or the output of <code>syncpoint iam token --credentials FILE</code>. It is kept in this
          page's memory only, and is gone when you close or reload the page.
        </p>
        {error !== null && <Problem error={error} what="The token was rejected" />}
        <button type="submit" className="primary" disabled={text.trim() === ""}>
          Sign in
        </button>
      </form>
    </main>
  );
}
