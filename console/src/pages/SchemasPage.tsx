// The schemas of a project, and their definitions.

import { useMutation, useQuery } from "@tanstack/react-query";
import { useState } from "react";

import { call } from "../api/client";
import { callQuery, usePermissions } from "../api/queries";
import { shell } from "../lib/copies";
import { idOf, projectOf, time } from "../lib/format";
import { jsonOf } from "../lib/payload";
import { schemasRoute } from "../router";
import { CopyAs } from "../ui/CopyAs";
import { Card, Dialog, Empty, Field, Loading, Page, Problem } from "../ui/parts";
import { Table } from "../ui/Table";

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
  const [creating, setCreating] = useState(false);
  const rights = usePermissions(`projects/${project}`, ["pubsub.schemas.create"]);
  const schemas = found.data?.schemas ?? [];
  return (
    <Page
      title="Schemas"
      of={project}
      actions={
        rights.has("pubsub.schemas.create") && (
          <button type="button" className="primary" onClick={() => setCreating(true)}>
            Create schema
          </button>
        )
      }
    >
      <Card title="Schemas" note="formats that messages of a topic must match" flush actions={<CopyAs cli={`syncpoint schemas list --project ${shell(project)}`} method="SchemaService.ListSchemas" request={request} />}>
        {found.isPending && <Loading />}
        {found.isError && <Problem error={found.error} />}
        {found.isSuccess && schemas.length === 0 && <Empty>This project has no schemas yet. Choose Create schema above, or run <code>syncpoint schemas create NAME --type avro --definition-file FILE</code>.</Empty>}
        <Table
          label="Schemas"
          rows={schemas}
          rowKey={(one) => one.name}
          columns={[
            {
              title: "Schema",
              cell: (one) => (
                <button type="button" className="link" aria-expanded={open === one.name} onClick={() => setOpen(open === one.name ? null : one.name)}>
                  {idOf(one.name)}
                </button>
              ),
            },
            { title: "Type", cell: (one) => (one.type === "AVRO" ? "Avro" : "Protocol Buffers") },
            { title: "Latest revision", style: "mono", cell: (one) => one.revisionId },
            { title: "Created", cell: (one) => time(one.revisionCreateTime) },
          ]}
        />
      </Card>
      {open !== null && <Definition name={open} />}
      {creating && (
        <CreateSchema
          project={project}
          onClose={() => {
            setCreating(false);
            void found.refetch();
          }}
        />
      )}
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

const KINDS = { AVRO: "Avro", PROTOCOL_BUFFER: "Protocol Buffers" };
const WORDS: Record<string, string> = { AVRO: "avro", PROTOCOL_BUFFER: "protocol-buffer" };

function CreateSchema({ project, onClose }: { project: string; onClose: () => void }) {
  const [id, setId] = useState("");
  const [type, setType] = useState("AVRO");
  const [definition, setDefinition] = useState("");
  const request = { parent: `projects/${project}`, schemaId: id, schema: { type, definition } };
  const made = useMutation({ mutationFn: () => call<Schema>("SchemaService.CreateSchema", request), onSuccess: onClose });
  return (
    <Dialog title="Create a schema" onClose={onClose}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          made.mutate();
        }}
      >
        <Field label="Name">{(field) => <input id={field} required value={id} onChange={(event) => setId(event.target.value)} />}</Field>
        <Field label="Type">
          {(field) => (
            <select id={field} value={type} onChange={(event) => setType(event.target.value)}>
              {Object.entries(KINDS).map(([key, title]) => (
                <option key={key} value={key}>
                  {title}
                </option>
              ))}
            </select>
          )}
        </Field>
        <Field label="Definition" hint={type === "AVRO" ? "A record in JSON." : "A file with one message at its top."}>
          {(field) => <textarea id={field} required className="mono" rows={8} spellCheck={false} value={definition} onChange={(event) => setDefinition(event.target.value)} />}
        </Field>
        {made.isError && <Problem error={made.error} />}
        <footer>
          <CopyAs cli={`syncpoint schemas create ${shell(id || "NAME")} --type ${WORDS[type] ?? ""} --definition ${shell(definition)} --project ${shell(project)}`} method="SchemaService.CreateSchema" request={request} />
          <button type="submit" className="primary" disabled={made.isPending}>
            Create
          </button>
        </footer>
      </form>
    </Dialog>
  );
}
