// What is said where nobody watches over the server, or where the one that does is not asked with success.

import { ApiError } from "../api/client";
import { Card, Problem } from "./parts";

export function NoMonitor({ error }: { error: unknown }) {
  if (!(error instanceof ApiError) || error.code !== "FAILED_PRECONDITION") return <Problem error={error} />;
  return (
    <Card title="Nobody watches over this server">
      <p>{error.message}</p>
      <p className="muted">A single server watches over itself; of a cluster one process does, which reads the metrics of all others, keeps two weeks of them, and notifies who is on call.</p>
    </Card>
  );
}

/** A link to a section of the runbooks; a path where nobody has said where they are read. */
export function Runbook({ link }: { link: string | undefined }) {
  if (link === undefined || link === "") return null;
  if (/^https?:\/\//.test(link))
    return (
      <a href={link} target="_blank" rel="noreferrer">
        Runbook
      </a>
    );
  return (
    <span className="muted" title="Set `runbooks` in the monitor's file, and this is a link">
      Runbook: <code>{link}</code>
    </span>
  );
}
