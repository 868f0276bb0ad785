// "Copy as": the same action for the terminal, a program, or curl.

import { useContext, useState } from "react";

import type { Fields } from "../api/client";
import { AboutContext } from "../api/queries";
import { type Copies, curlOf, pythonOf } from "../lib/copies";
import { CopyButton, Dialog, Tabs } from "./parts";

type Kind = keyof Copies;

const KINDS: [Kind, string][] = [
  ["cli", "Command line"],
  ["python", "Python"],
  ["curl", "curl"],
];

export function CopyAs({ cli, method, request }: { cli: string; method: string; request: Fields }) {
  const [open, setOpen] = useState(false);
  const [kind, setKind] = useState<Kind>("cli");
  const { identifies } = useContext(AboutContext);
  const make = (): string => (kind === "cli" ? cli : kind === "python" ? pythonOf(method, request) : curlOf(method, request, identifies));
  return (
    <>
      <button type="button" className="quiet" onClick={() => setOpen(true)}>
        Copy as…
      </button>
      {open && (
        <Dialog title="Copy as" onClose={() => setOpen(false)}>
          <Tabs tabs={KINDS} current={kind} onChange={setKind} />
          <pre className="code" tabIndex={0} aria-label="Command">
            {make()}
          </pre>
          <footer>
            <CopyButton text={make()} quiet={false} />
          </footer>
        </Dialog>
      )}
    </>
  );
}
