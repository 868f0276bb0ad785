// The schemas of a project, and their definitions.

import { useQuery } from "@tanstack/react-query";
import { useState } from "react";

import { callQuery } from "../api/queries";
import { shell } from "../lib/copies";
import { idOf, projectOf, time } from "../lib/format";
import { jsonOf } from "../lib/payload";
import { schemasRoute } from "../router";
import { CopyAs } from "../ui/CopyAs";
import { Card, Empty, Loading, Page, Problem } from "../ui/parts";

interface Schema {
  name: string;
  type?: string;
  definition?: string;
  revisionId?: string;
  revisionCreateTime?: string;
}

export function SchemasPage() {
  const { project } = schemasRoute.useParams();
  const request = { parent: `projects/${project}`, view: "BASIC", pageSize: 1000 };
  const found = useQuery(callQuery<{ schemas?: Schema[] }>("SchemaService.ListSchemas", request));
  const [open, setOpen] = useState<string | null>(null);
  const schemas = found.data?.schemas ?? [];
  return (
    <Page title="Schemas" of={project}>
      <Card title="Schemas" note="formats that messages of a topic must match" flush actions={<CopyAs cli={`syncpoint schemas list --project ${shell(project)}`} method="SchemaService.ListSchemas" request={request} />}>
        {found.isPending && <Loading />}
        {found.isError && <Problem error={found.error} />}
        {found.isSuccess && schemas.length === 0 && <Empty>This project has no schemas yet. Create one with <code>syncpoint schemas create NAME --type avro --definition-file FILE</code>.</Empty>}
        {schemas.length > 0 && (
          <div className="scroll" tabIndex={0} role="group" aria-label="Schemas">
            <table>
              <thead>
                <tr>
                  <th>Schema</th>
                  <th>Type</th>
                  <th>Latest revision</th>
                  <th>Created</th>
                </tr>
              </thead>
              <tbody>
                {schemas.map((one) => (
                  <tr key={one.name} className={open === one.name ? "chosen" : ""}>
                    <td>
                      <button type="button" className="link" aria-expanded={open === one.name} onClick={() => setOpen(open === one.name ? null : one.name)}>
                        {idOf(one.name)}
                      </button>
                    </td>
                    <td>{one.type === "AVRO" ? "Avro" : "Protocol Buffers"}</td>
                    <td className="mono">{one.revisionId}</td>
                    <td>{time(one.revisionCreateTime)}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        )}
      </Card>
      {open !== null && <Definition name={open} />}
    </Page>
  );
}

function Definition({ name }: { name: string }) {
  const request = { name, view: "FULL", pageSize: 20 };
  const found = useQuery(callQuery<{ schemas?: Schema[] }>("SchemaService.ListSchemaRevisions", request));
  return (
    <Card title={`Revisions of ${idOf(name)}`} actions={<CopyAs cli={`syncpoint schemas list-revisions ${shell(idOf(name))} --project ${shell(projectOf(name))}`} method="SchemaService.ListSchemaRevisions" request={request} />}>
      {found.isError && <Problem error={found.error} />}
      {(found.data?.schemas ?? []).map((one, index) => (
        <details key={one.revisionId} open={index === 0} className="received">
          <summary>
            <span className="mono">{one.revisionId}</span> <span className="muted">{time(one.revisionCreateTime)}</span>
          </summary>
          <pre className="code" tabIndex={0} aria-label={`Definition of revision ${one.revisionId ?? ""}`}>
            {one.definition === undefined ? "This revision was compiled and has no source text." : (jsonOf(one.definition) ?? one.definition)}
          </pre>
        </details>
      ))}
    </Card>
  );
}
