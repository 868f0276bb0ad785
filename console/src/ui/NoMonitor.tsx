// What pages show where no monitor runs, or where it cannot be reached.

import { ApiError } from "../api/client";
import { Card, Problem } from "./parts";

export function NoMonitor({ error }: { error: unknown }) {
  if (!(error instanceof ApiError) || error.code !== "FAILED_PRECONDITION") return <Problem error={error} />;
  return (
    <Card title="No monitor is running">
      <p>{error.message}</p>
      <p className="muted">A single server monitors itself. In a cluster, one process reads the metrics of all others, keeps them for two weeks, and notifies the people on call.</p>
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
    <span className="muted" title="To turn this into a link, set `runbooks` in the monitor's file">
      Runbook: <code>{link}</code>
    </span>
  );
}
