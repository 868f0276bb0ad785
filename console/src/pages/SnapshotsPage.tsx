// All snapshots of a project.

import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";

import { call } from "../api/client";
import { callQuery, usePermissions } from "../api/queries";
import { shell } from "../lib/copies";
import { idOf, projectOf, time } from "../lib/format";
import { snapshotsRoute } from "../router";
import { CopyAs } from "../ui/CopyAs";
import { Card, Confirm, Empty, Loading, Page, Problem } from "../ui/parts";

interface Snapshot {
  name: string;
  topic: string;
  expireTime?: string;
}

export function SnapshotsPage() {
  const { project } = snapshotsRoute.useParams();
  const request = { project: `projects/${project}`, pageSize: 1000 };
  const found = useQuery(callQuery<{ snapshots?: Snapshot[]; nextPageToken?: string }>("Subscriber.ListSnapshots", request));
  const rights = usePermissions(`projects/${project}`, ["pubsub.snapshots.delete"]);
  const [deleting, setDeleting] = useState<string | null>(null);
  const snapshots = found.data?.snapshots ?? [];
  return (
    <Page title="Snapshots" of={project}>
      <Card
        title="Snapshots"
        note={found.data?.nextPageToken ? "the first 1,000; create and use them on a subscription's page" : "create and use them on a subscription's page"}
        flush
        actions={<CopyAs cli={`syncpoint snapshots list --project ${shell(project)}`} method="Subscriber.ListSnapshots" request={request} />}
      >
        {found.isPending && <Loading />}
        {found.isError && <Problem error={found.error} />}
        {found.isSuccess && snapshots.length === 0 && <Empty>This project has no snapshots yet. Open a subscription and choose Seek and snapshots to create one.</Empty>}
        {snapshots.length > 0 && (
          <div className="scroll" tabIndex={0} role="group" aria-label="Snapshots">
            <table>
              <thead>
                <tr>
                  <th>Snapshot</th>
                  <th>Topic</th>
                  <th>Expires</th>
                  <th>
                  <span className="visually-hidden">Actions</span>
                </th>
                </tr>
              </thead>
              <tbody>
                {snapshots.map((one) => (
                  <tr key={one.name}>
                    <td>{idOf(one.name)}</td>
                    <td>
                      {one.topic.startsWith("_") ? (
                        <span className="muted">deleted</span>
                      ) : (
                        <Link to="/p/$project/topics/$topic" params={{ project: projectOf(one.topic), topic: idOf(one.topic) }}>
                          {idOf(one.topic)}
                        </Link>
                      )}
                    </td>
                    <td>{time(one.expireTime)}</td>
                    <td className="right">
                      {rights.has("pubsub.snapshots.delete") && (
                        <button type="button" className="quiet" onClick={() => setDeleting(one.name)}>
                          Delete
                        </button>
                      )}
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        )}
      </Card>
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
