// One topic: what comes in, who gets it, what is stored.

import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate } from "@tanstack/react-router";
import { useState } from "react";

import { call } from "../api/client";
import { last, useRates, useWatch } from "../api/live";
import { callQuery, usePermissions } from "../api/queries";
import { SUBSCRIPTION } from "../api/settings";
import type { Topic, TopicState } from "../api/types";
import { shell } from "../lib/copies";
import { compact, count, duration, idOf, num, plural, projectOf, rate, time } from "../lib/format";
import { type MessageSearch, topicRoute } from "../router";
import { TopicPublishers } from "../ui/Connected";
import { CopyAs } from "../ui/CopyAs";
import { CreateResource } from "../ui/CreateResource";
import { FilledChart, labelsOf } from "../ui/FilledChart";
import { MessageBrowser } from "../ui/MessageBrowser";
import { Card, Confirm, Empty, Facts, Problem, Tile } from "../ui/parts";
import { Publish } from "../ui/Publish";
import { NoResource, NotCounted, ResourcePage } from "../ui/Resource";
import { Backlog, OldestAge, stored, Subscribers } from "../ui/StateCells";
import { Table } from "../ui/Table";
import { TopicSettings } from "../ui/TopicSettings";

export const TOPIC_TABS = ["overview", "messages", "publish", "scheduled", "settings"] as const;
export type TopicTab = (typeof TOPIC_TABS)[number];

const TITLES: [TopicTab, string][] = [
  ["overview", "Overview"],
  ["messages", "Messages"],
  ["publish", "Publish"],
  ["scheduled", "Scheduled"],
  ["settings", "Settings"],
];

const published = (state: TopicState): number => (state.sources ?? []).reduce((all, one) => all + num(one.nextOffset), 0);

export function TopicPage() {
  const { project, topic: id } = topicRoute.useParams();
  const { tab = "overview", ...search } = topicRoute.useSearch();
  const name = `projects/${project}/topics/${id}`;
  const go = useNavigate({ from: topicRoute.fullPath });
  const [subscribing, setSubscribing] = useState(false);
  const found = useQuery(callQuery<Topic>("Publisher.GetTopic", { topic: name }));
  const rights = usePermissions(name, ["pubsub.topics.publish", "pubsub.topics.delete", "pubsub.topics.attachSubscription"]);
  if (!found.isSuccess) return <NoResource name={name} error={found.error} />;
  const tabs = TITLES.filter(([key]) => key !== "publish" || rights.has("pubsub.topics.publish"));
  return (
    <ResourcePage
      kind="topic"
      name={name}
      mayDelete={rights.has("pubsub.topics.delete")}
      actions={
        rights.has("pubsub.topics.attachSubscription") && (
          <button type="button" onClick={() => setSubscribing(true)}>
            Create subscription
          </button>
        )
      }
      tabbed={{ tabs, current: tab, onChange: (next) => void go({ search: { tab: next } }) }}
    >
      {tab === "overview" && <Overview name={name} topic={found.data} />}
      {tab === "messages" && <MessageBrowser kind="topic" name={name} topic={name} search={search} onSearch={(next: MessageSearch) => void go({ search: { tab: "messages", ...next } })} />}
      {tab === "publish" && <Publish topic={name} />}
      {tab === "scheduled" && <Scheduled topic={name} />}
      {tab === "settings" && <TopicSettings topic={name} />}
      {subscribing && <CreateResource kind={SUBSCRIPTION} project={project} topic={name} onClose={() => setSubscribing(false)} />}
    </ResourcePage>
  );
}

function Overview({ name, topic }: { name: string; topic: Topic }) {
  const watched = useWatch<TopicState>(`topic:${name}`);
  const rates = useRates(watched, published);
  const lines = [{ label: "published", tone: "--line-1", family: "syncpoint_topic_messages_total", labels: labelsOf(name), points: rates }];
  const state = watched.value;
  return (
    <>
      <NotCounted error={watched.error} unknown={state?.unknown} />
      <div className="tiles">
        <Tile label="Published" value={rate(last(rates))} />
        <Tile label="Stored" value={state === null ? "–" : compact(stored(state))} note="messages" />
        <Tile label="Total published" value={state === null ? "–" : compact(published(state))} note="messages, in all sources listed below" />
        <Tile label="Subscriptions" value={state === null ? "–" : count(state.subscriptions)} note={state === null ? "" : plural(num(state.snapshots), "snapshot")} />
      </div>
      <FilledChart title="Published per second" label="Messages published per second" lines={lines} />
      <Subscriptions topic={name} />
      <TopicPublishers name={name} />
      <div className="columns">
        <Card title="Configuration" actions={<CopyAs cli={`syncpoint topics describe ${shell(idOf(name))} --project ${shell(projectOf(name))}`} method="Publisher.GetTopic" request={{ topic: name }} />}>
          <Facts
            rows={[
              ["State", (topic.state ?? "ACTIVE").toLowerCase()],
              ["Retention", topic.messageRetentionDuration === undefined ? "until all subscriptions have acknowledged" : duration(topic.messageRetentionDuration)],
              [
                "Schema",
                topic.schemaSettings === undefined ? "none" : `${idOf(topic.schemaSettings.schema)}, ${topic.schemaSettings.encoding ?? ""}`,
              ],
              ["Labels", Object.entries(topic.labels ?? {}).map(([key, value]) => `${key}=${value}`).join(", ") || "none"],
            ]}
          />
        </Card>
        <Card title="Sources" note="each is a run of consecutive offsets in one log" flush>
          <Table
            label="Sources"
            rows={state?.sources ?? []}
            rowKey={(one) => `${one.source}/${one.chain ?? 0}`}
            columns={[
              { title: "Log", cell: (one) => one.logCounter },
              { title: "Chain", cell: (one) => one.chain ?? "–" },
              { title: "First", right: true, cell: (one) => count(one.firstOffset) },
              { title: "Next", right: true, cell: (one) => count(one.nextOffset) },
              { title: "Stored", right: true, cell: (one) => count(num(one.nextOffset) - num(one.firstOffset)) },
            ]}
          />
          {state !== null && (state.sources ?? []).length === 0 && <Empty>No messages are stored.</Empty>}
        </Card>
      </div>
    </>
  );
}

function Subscriptions({ topic }: { topic: string }) {
  const found = useQuery(callQuery<{ subscriptions?: string[]; nextPageToken?: string }>("Publisher.ListTopicSubscriptions", { topic, pageSize: 100 }));
  const names = found.data?.subscriptions ?? [];
  return (
    <Card title="Subscriptions" note={found.data?.nextPageToken ? "the first 100" : undefined} flush>
      {found.isError && <Problem error={found.error} />}
      {found.isSuccess && names.length === 0 && <Empty>This topic has no subscriptions: its messages are delivered to no one, and are kept only if the topic has a retention. Choose Create subscription above.</Empty>}
      <Table
        label="Subscriptions"
        rows={names}
        rowKey={(one) => one}
        columns={[
          {
            title: "Subscription",
            cell: (one) => (
              <Link to="/p/$project/subscriptions/$subscription" params={{ project: projectOf(one), subscription: idOf(one) }}>
                {projectOf(one) === projectOf(topic) ? idOf(one) : one}
              </Link>
            ),
          },
          { title: "Connected", right: true, cell: (one) => <Subscribers name={one} /> },
          { title: "Backlog", right: true, cell: (one) => <Backlog name={one} /> },
          { title: "Oldest", right: true, cell: (one) => <OldestAge name={one} /> },
        ]}
      />
    </Card>
  );
}

interface ScheduledMessage {
  messageId: string;
  enqueueTime?: string;
  chain?: number;
}

function Scheduled({ topic }: { topic: string }) {
  const rights = usePermissions(topic, ["syncpoint.topics.read", "pubsub.topics.publish"]);
  const allowed = rights.has("syncpoint.topics.read");
  const found = useQuery({ ...callQuery<{ messages?: ScheduledMessage[]; nextPageToken?: string }>("Admin.ListScheduledMessages", { topic, pageSize: 100 }, 5_000), enabled: allowed });
  const [cancelling, setCancelling] = useState<string | null>(null);
  if (!allowed)
    return (
      <Card title="Scheduled">
        <Empty>Viewing scheduled messages requires the permission syncpoint.topics.read.</Empty>
      </Card>
    );
  return (
    <Card title="Scheduled" note="stored now, published at their scheduled time" flush>
      {found.isError && <Problem error={found.error} />}
      {found.isSuccess && (found.data.messages ?? []).length === 0 && <Empty>No scheduled messages. To schedule a message, run <code>syncpoint topics publish {idOf(topic)} --message TEXT --in 10m</code>.</Empty>}
      <Table
        label="Scheduled"
        rows={found.data?.messages ?? []}
        rowKey={(one) => one.messageId}
        columns={[
          { title: "Publish at", cell: (one) => time(one.enqueueTime) },
          { title: "Message ID", style: "mono", cell: (one) => one.messageId },
          {
            title: null,
            right: true,
            cell: (one) =>
              rights.has("pubsub.topics.publish") && (
                <button type="button" className="quiet" onClick={() => setCancelling(one.messageId)}>
                  Cancel
                </button>
              ),
          },
        ]}
      />
      {cancelling !== null && (
        <Confirm
          title="Cancel this message?"
          text={<>Message {cancelling} will not be published.</>}
          action="Cancel message"
          dangerous
          onClose={() => setCancelling(null)}
          run={async () => {
            await call("Admin.CancelScheduledMessage", { topic, messageId: cancelling });
            await found.refetch();
          }}
        />
      )}
    </Card>
  );
}
