// All snapshots of a project.

import { useMutation, useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";

import { call } from "../api/client";
import { subscriptionsQuery } from "../api/lists";
import { callQuery, usePermissions } from "../api/queries";
import { shell } from "../lib/copies";
import { idOf, projectOf, time } from "../lib/format";
import { snapshotsRoute } from "../router";
import { CopyAs } from "../ui/CopyAs";
import { Card, Confirm, Dialog, Empty, Field, Loading, Page, Problem } from "../ui/parts";
import { Table } from "../ui/Table";

interface Snapshot {
  name: string;
  topic: string;
  expireTime?: string;
}

export function SnapshotsPage() {
  const { project } = snapshotsRoute.useParams();
  const request = { project: `projects/${project}`, pageSize: 1000 };
  const found = useQuery(callQuery<{ snapshots?: Snapshot[]; nextPageToken?: string }>("Subscriber.ListSnapshots", request));
  const rights = usePermissions(`projects/${project}`, ["pubsub.snapshots.delete", "pubsub.snapshots.create"]);
  const [deleting, setDeleting] = useState<string | null>(null);
  const [creating, setCreating] = useState(false);
  const snapshots = found.data?.snapshots ?? [];
  return (
    <Page
      title="Snapshots"
      of={project}
      actions={
        rights.has("pubsub.snapshots.create") && (
          <button type="button" className="primary" onClick={() => setCreating(true)}>
            Create snapshot
          </button>
        )
      }
    >
      <Card
        title="Snapshots"
        note={found.data?.nextPageToken ? "the first 1,000; seek to them on a subscription's page" : "seek to them on a subscription's page"}
        flush
        actions={<CopyAs cli={`syncpoint snapshots list --project ${shell(project)}`} method="Subscriber.ListSnapshots" request={request} />}
      >
        {found.isPending && <Loading />}
        {found.isError && <Problem error={found.error} />}
        {found.isSuccess && snapshots.length === 0 && <Empty>This project has no snapshots yet. A snapshot keeps what a subscription has acknowledged at one moment, to seek back to.</Empty>}
        <Table
          label="Snapshots"
          rows={snapshots}
          rowKey={(one) => one.name}
          columns={[
            { title: "Snapshot", cell: (one) => idOf(one.name) },
            {
              title: "Topic",
              cell: (one) =>
                one.topic.startsWith("_") ? (
                  <span className="muted">deleted</span>
                ) : (
                  <Link to="/p/$project/topics/$topic" params={{ project: projectOf(one.topic), topic: idOf(one.topic) }}>
                    {idOf(one.topic)}
                  </Link>
                ),
            },
            { title: "Expires", cell: (one) => time(one.expireTime) },
            {
              title: null,
              right: true,
              cell: (one) =>
                rights.has("pubsub.snapshots.delete") && (
                  <button type="button" className="quiet" onClick={() => setDeleting(one.name)}>
                    Delete
                  </button>
                ),
            },
          ]}
        />
      </Card>
      {creating && (
        <CreateSnapshot
          project={project}
          onClose={() => {
            setCreating(false);
            void found.refetch();
          }}
        />
      )}
      {deleting !== null && (
        <Confirm
          title={`Delete the snapshot ${idOf(deleting)}?`}
          text="Subscriptions can no longer seek to it, and messages that only this snapshot retains are deleted."
          action="Delete snapshot"
          dangerous
          onClose={() => setDeleting(null)}
          run={async () => {
            await call("Subscriber.DeleteSnapshot", { snapshot: deleting });
            await found.refetch();
          }}
        />
      )}
    </Page>
  );
}

function CreateSnapshot({ project, onClose }: { project: string; onClose: () => void }) {
  const [id, setId] = useState("");
  const [of, setOf] = useState("");
  const known = useQuery(subscriptionsQuery(project, of === "" ? {} : { q: of })).data?.rows ?? [];
  const request = { name: `projects/${project}/snapshots/${id}`, subscription: `projects/${project}/subscriptions/${of}` };
  const made = useMutation({ mutationFn: () => call<Snapshot>("Subscriber.CreateSnapshot", request), onSuccess: onClose });
  return (
    <Dialog title="Create a snapshot" onClose={onClose}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          made.mutate();
        }}
      >
        <Field label="Name">{(field) => <input id={field} required value={id} onChange={(event) => setId(event.target.value)} />}</Field>
        <Field label="Subscription" hint="The snapshot keeps what it has not acknowledged by now.">
          {(field) => (
            <>
              <input id={field} required list="snapshot-subscriptions" value={of} onChange={(event) => setOf(event.target.value)} />
              <datalist id="snapshot-subscriptions">
                {known.map((one) => (
                  <option key={one.name} value={idOf(one.name)} />
                ))}
              </datalist>
            </>
          )}
        </Field>
        {made.isError && <Problem error={made.error} />}
        <footer>
          <CopyAs cli={`syncpoint snapshots create ${shell(id || "NAME")} --subscription ${shell(of || "SUBSCRIPTION")} --project ${shell(project)}`} method="Subscriber.CreateSnapshot" request={request} />
          <button type="submit" className="primary" disabled={made.isPending}>
            Create
          </button>
        </footer>
      </form>
    </Dialog>
  );
}
