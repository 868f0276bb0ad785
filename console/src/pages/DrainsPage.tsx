// What is taken out of service, and how far that is.

import { useState } from "react";

import { call, serves } from "../api/client";
import { useWatch } from "../api/live";
import { usePermissions } from "../api/queries";
import type { DrainState, Member } from "../api/types";
import { shell } from "../lib/copies";
import { count, num, time } from "../lib/format";
import { CopyAs } from "../ui/CopyAs";
import { Badge, Card, Confirm, Empty, Field, OnlyInClusters, Page, Problem } from "../ui/parts";
import { Table } from "../ui/Table";

export function DrainsPage() {
  const { value, error } = useWatch<{ drains?: DrainState[] }>(serves("Admin.ListDrains") ? "drains" : null);
  const members = useWatch<{ members?: Member[] }>(serves("Admin.ListMembers") ? "members" : null).value?.members ?? [];
  const rights = usePermissions("server", ["syncpoint.routing.drain"]);
  const [draining, setDraining] = useState(false);
  const [ending, setEnding] = useState<string | null>(null);
  const drains = value?.drains ?? [];
  if (!serves("Admin.ListDrains")) return <OnlyInClusters title="Drains" />;
  return (
    <Page
      title="Drains"
      of="Take a process, a storage cluster or a region out of service without errors for clients"
      actions={
        rights.has("syncpoint.routing.drain") && (
          <button type="button" className="primary" onClick={() => setDraining(true)}>
            Drain…
          </button>
        )
      }
    >
      <Card title="Active drains" flush actions={<CopyAs cli="syncpoint drain" method="Admin.ListDrains" request={{}} />}>
        {error !== null && <Problem error={error} />}
        {value !== null && drains.length === 0 && <Empty>No active drains: every process is in service.</Empty>}
        <Table
          label="Active drains"
          rows={drains}
          rowKey={(one) => one.target}
          columns={[
            { title: "Target", cell: (one) => one.target },
            { title: "Since", cell: (one) => time(one.createTime) },
            { title: "Processes", style: "wrap", cell: (one) => (one.members ?? []).join(", ") },
            { title: "Connections left", right: true, cell: (one) => count(one.connections) },
            { title: "Chains left", right: true, cell: (one) => count(one.chains) },
            {
              title: "Comment",
              style: "wrap",
              cell: (one) => (
                <>
                  {num(one.connections) + num(one.chains) === 0 ? <Badge tone="good">empty</Badge> : <Badge tone="warn">moving</Badge>} {one.comment}
                </>
              ),
            },
            {
              title: null,
              right: true,
              cell: (one) =>
                rights.has("syncpoint.routing.drain") && (
                  <button type="button" className="quiet" onClick={() => setEnding(one.target)}>
                    Undrain
                  </button>
                ),
            },
          ]}
        />
      </Card>
      {draining && <Drain members={members} onClose={() => setDraining(false)} />}
      {ending !== null && (
        <Confirm title={`Return ${ending} to service?`} text="It receives its share of connections and chains again." action="Undrain" onClose={() => setEnding(null)} run={() => call("Admin.Undrain", { target: ending })}>
          <CopyAs cli={`syncpoint undrain ${shell(ending)}`} method="Admin.Undrain" request={{ target: ending }} />
        </Confirm>
      )}
    </Page>
  );
}

function Drain({ members, onClose }: { members: Member[]; onClose: () => void }) {
  const [target, setTarget] = useState("");
  const [comment, setComment] = useState("");
  const clusters = [...new Set(members.map((one) => one.cluster ?? "").filter((one) => one !== ""))].map((one) => `cluster/${one}`);
  const regions = [...new Set(members.map((one) => one.region ?? "").filter((one) => one !== ""))].map((one) => `region/${one}`);
  const request = { target, ...(comment === "" ? {} : { comment }) };
  return (
    <Confirm title="Drain" text="Connections and chains move to other processes without errors or lost messages. A drain that would leave a topic without a forwarder is refused." action="Drain" dangerous disabled={target === ""} onClose={onClose} run={() => call("Admin.Drain", request)}>
      <Field label="Target">
        {(id) => (
          <select id={id} value={target} onChange={(event) => setTarget(event.target.value)}>
            <option value="">Choose …</option>
            {[...members.map((one) => one.name), ...clusters, ...regions].map((one) => (
              <option key={one}>{one}</option>
            ))}
          </select>
        )}
      </Field>
      <Field label="Comment">{(id) => <input id={id} value={comment} onChange={(event) => setComment(event.target.value)} />}</Field>
      <CopyAs cli={`syncpoint drain ${shell(target || "TARGET")}${comment === "" ? "" : ` --comment ${shell(comment)}`}`} method="Admin.Drain" request={request} />
    </Confirm>
  );
}
