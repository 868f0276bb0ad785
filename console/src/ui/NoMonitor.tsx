// What pages show where no monitor runs, or where it cannot be reached.

import { useQuery } from "@tanstack/react-query";
import { Fragment, useState } from "react";

import { ApiError, send } from "../api/client";
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

/** A link to a section of the operator's own runbooks; where they have none, the section that came with this version. */
export function Runbook({ link }: { link: string | undefined }) {
  const [open, setOpen] = useState(false);
  if (link === undefined || link === "") return null;
  if (/^https?:\/\//.test(link))
    return (
      <a href={link} target="_blank" rel="noreferrer">
        Runbook
      </a>
    );
  return (
    <>
      <button type="button" className="link" aria-expanded={open} onClick={() => setOpen(!open)}>
        Runbook
      </button>
      {open && <ShippedRunbook rule={link.slice(link.lastIndexOf("#") + 1)} command={link} />}
    </>
  );
}

/** Code between backticks, and of links their texts. */
function Words({ text }: { text: string }) {
  return text
    .replace(/\[([^\]]*)\]\([^)]*\)/g, "$1")
    .replaceAll("**", "")
    .split("`")
    .map((part, index) => (index % 2 === 1 ? <code key={index}>{part}</code> : <Fragment key={index}>{part}</Fragment>));
}

function ShippedRunbook({ rule, command }: { rule: string; command: string }) {
  const found = useQuery({ queryKey: ["runbook", rule], queryFn: () => send<{ text: string }>({ verb: "GET", path: `/console/api/runbook?rule=${encodeURIComponent(rule)}`, body: null }), staleTime: Number.POSITIVE_INFINITY });
  if (found.isError) return <Problem error={found.error} />;
  const lines = (found.data?.text ?? "").split("\n").filter((one) => one.trim() !== "");
  const steps = lines.filter((one) => /^\d+\. /.test(one));
  return (
    <section className="runbook" aria-label="Runbook">
      {lines
        .filter((one) => !steps.includes(one))
        .map((one) => (
          <p key={one}>
            <Words text={one} />
          </p>
        ))}
      <ol>
        {steps.map((one) => (
          <li key={one}>
            <Words text={one.replace(/^\d+\. /, "")} />
          </li>
        ))}
      </ol>
      <p className="muted">
        <code>{command}</code>
      </p>
    </section>
  );
}
