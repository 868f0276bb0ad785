// One subscription: where it stands, what keeps messages from its subscribers, and what can be done about it.

import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate } from "@tanstack/react-router";
import { useMemo } from "react";

import { send } from "../api/client";
import { last, useRates, useWatch } from "../api/live";
import { callQuery, usePermissions } from "../api/queries";
import type { Obstacle, Subscription, SubscriptionState } from "../api/types";
import { shell } from "../lib/copies";
import { bytes, compact, count, duration, idOf, num, projectOf, rate, seconds } from "../lib/format";
import { type MessageSearch, subscriptionRoute } from "../router";
import { SubscriptionClients } from "../ui/Connected";
import { CopyAs } from "../ui/CopyAs";
import { DeadLetters } from "../ui/DeadLetters";
import { FilledChart, labelsOf } from "../ui/FilledChart";
import { MessageBrowser } from "../ui/MessageBrowser";
import { Badge, Card, CopyButton, Facts, Problem, Tile } from "../ui/parts";
import { Pull } from "../ui/Pull";
import { NoResource, NotCounted, ResourcePage } from "../ui/Resource";
import { Rules } from "../ui/Rules";
import { Seek } from "../ui/Seek";
import { SubscriptionSettings } from "../ui/SubscriptionSettings";
import { Table } from "../ui/Table";
import { deliveryOf } from "./SubscriptionsPage";

export const SUBSCRIPTION_TABS = ["overview", "messages", "pull", "rules", "settings", "seek", "letters"] as const;
export type SubscriptionTab = (typeof SUBSCRIPTION_TABS)[number];

const CONSUME = "pubsub.subscriptions.consume";
const acked = (state: SubscriptionState): number => (state.sources ?? []).reduce((all, one) => all + num(one.ackedMessages), 0);

export function SubscriptionPage() {
  const { project, subscription: id } = subscriptionRoute.useParams();
  const { tab = "overview", ...search } = subscriptionRoute.useSearch();
  const name = `projects/${project}/subscriptions/${id}`;
  const go = useNavigate({ from: subscriptionRoute.fullPath });
  const found = useQuery(callQuery<Subscription>("Subscriber.GetSubscription", { subscription: name }));
  const rights = usePermissions(name, [CONSUME, "pubsub.subscriptions.delete"]);
  if (!found.isSuccess) return <NoResource name={name} error={found.error} />;
  const config = found.data;
  const tabs: [SubscriptionTab, string][] = [
    ["overview", "Overview"],
    ["messages", "Messages"],
  ];
  if (rights.has(CONSUME) && deliveryOf(config) === "pull") tabs.push(["pull", "Pull"]);
  tabs.push(["rules", "Rules"], ["settings", "Settings"]);
  if (rights.has(CONSUME) && !config.detached) tabs.push(["seek", "Seek and snapshots"]);
  tabs.push(["letters", "Dead letters"]);
  return (
    <ResourcePage kind="subscription" name={name} mayDelete={rights.has("pubsub.subscriptions.delete")} tabbed={{ tabs, current: tab, onChange: (next) => void go({ search: { tab: next } }) }}>
      {tab === "overview" && <Overview name={name} config={config} />}
      {tab === "messages" && (
        <MessageBrowser kind="subscription" name={name} topic={config.topic.startsWith("_") ? undefined : config.topic} search={search} onSearch={(next: MessageSearch) => void go({ search: { tab: "messages", ...next } })} />
      )}
      {tab === "pull" && <Pull subscription={name} />}
      {tab === "rules" && <Rules name={name} />}
      {tab === "settings" && <SubscriptionSettings name={name} config={config} />}
      {tab === "seek" && <Seek name={name} config={config} />}
      {tab === "letters" && <DeadLetters name={name} config={config} />}
    </ResourcePage>
  );
}

function Overview({ name, config }: { name: string; config: Subscription }) {
  const watched = useWatch<SubscriptionState>(`subscription:${name}`);
  const rates = useRates(watched, acked);
  const state = watched.value;
  const labels = labelsOf(name);
  const lines = [{ label: "acknowledged", tone: "--line-3", family: "syncpoint_subscription_acknowledged_total", labels, points: rates }];
  const waiting = useMemo(() => watched.samples.map((one): [number, number] => [one.at, num(one.value.backlogMessages)]), [watched.samples]);
  const backlog = [{ label: "unacknowledged", tone: "--line-1", family: "syncpoint_subscription_backlog_messages", labels, points: waiting }];
  const age = seconds(state?.oldestUnackedAge);
  return (
    <>
      <NotCounted error={watched.error} unknown={state?.unknown} />
      <div className="tiles">
        <Tile label="Backlog" value={state === null ? "–" : compact(num(state.backlogMessages))} note={state === null ? "" : bytes(state.backlogBytes)} />
        <Tile label="Oldest" value={state === null ? "–" : state.oldestUnackedAge === undefined ? "none" : duration(age)} tone={age > 600 ? "warn" : undefined} note="unacknowledged message" />
        <Tile label="Connected" value={state === null ? "–" : count(state.subscribers)} note="streams and waiting pulls" tone={num(state?.subscribers) === 0 && num(state?.backlogMessages) > 0 ? "warn" : undefined} />
        <Tile label="Outstanding" value={state === null ? "–" : compact(num(state.outstandingMessages))} note={state === null ? "" : bytes(state.outstandingBytes)} />
        <Tile label="Acknowledged" value={rate(last(rates))} />
      </div>
      <Why name={name} state={state} />
      <SubscriptionClients name={name} />
      <div className="columns">
        <FilledChart title="Backlog" label="Unacknowledged messages" lines={backlog} unit="" />
        <FilledChart title="Acknowledged per second" label="Messages acknowledged per second" lines={lines} />
      </div>
      <div className="columns">
        <Card title="Configuration" actions={<CopyAs cli={`syncpoint subscriptions describe ${shell(idOf(name))} --project ${shell(projectOf(name))}`} method="Subscriber.GetSubscription" request={{ subscription: name }} />}>
          <Facts rows={factsOf(config, state)} />
        </Card>
        <Card title="Sources" note="acknowledged offsets of each" flush>
          <Table
            label="Sources"
            rows={state?.sources ?? []}
            rowKey={(one) => `${one.source}/${one.chain ?? 0}`}
            columns={[
              { title: "Source", style: "mono", cell: (one) => one.source },
              { title: "Start", right: true, cell: (one) => count(one.startOffset) },
              { title: "First unacked", right: true, cell: (one) => count(one.firstUnackedOffset) },
              { title: "Next", right: true, cell: (one) => count(one.nextOffset) },
              { title: "Acked", right: true, cell: (one) => count(one.ackedMessages) },
            ]}
          />
        </Card>
      </div>
    </>
  );
}

/** The findings of `syncpoint why`: drawn anew when the state has changed in what they are made of. */
function Why({ name, state }: { name: string; state: SubscriptionState | null }) {
  const mark = [state?.subscribers, num(state?.backlogMessages) > 0, num(state?.outstandingMessages) > 0].join();
  const found = useQuery({
    queryKey: ["why", name, mark],
    queryFn: () => send<{ findings: Obstacle[]; unknown: string[] }>({ verb: "GET", path: `/console/api/why?${new URLSearchParams({ subscription: name }).toString()}`, body: null }),
    enabled: state !== null,
    refetchInterval: 10_000,
    placeholderData: (before) => before,
  });
  if (found.isError) return <Problem error={found.error} />;
  if (found.data === undefined) return null;
  return (
    <Card title="Delivery diagnosis" actions={<CopyButton text={`syncpoint why ${shell(idOf(name))} --project ${shell(projectOf(name))}`} label="Copy command" />}>
      <ol className="findings">
        {found.data.findings.map((one) => (
          <li key={one.cause}>
            <Badge tone={["EMPTY", "UNDER_WAY"].includes(one.cause) ? "good" : ["OUT_WITH_SUBSCRIBERS", "FORWARDED", "FILTERED", "NOTHING_PUBLISHED"].includes(one.cause) ? "calm" : "warn"}>
              {one.cause.toLowerCase().replaceAll("_", " ")}
            </Badge>{" "}
            {one.text}
            {one.advice !== "" && <p className="muted">{one.advice}</p>}
          </li>
        ))}
      </ol>
      {found.data.unknown.map((one) => (
        <p key={one} className="note warn">
          Unknown: {one}
        </p>
      ))}
    </Card>
  );
}

function factsOf(config: Subscription, state: SubscriptionState | null): [string, React.ReactNode][] {
  const topic = config.topic.startsWith("_") ? (
    "deleted"
  ) : (
    <Link to="/p/$project/topics/$topic" params={{ project: projectOf(config.topic), topic: idOf(config.topic) }}>
      {idOf(config.topic)}
    </Link>
  );
  const rows: [string, React.ReactNode][] = [
    ["Topic", topic],
    ["Delivery", deliveryOf(config)],
    ["Filter", config.filter === undefined ? "none" : <code key="filter">{config.filter}</code>],
    ["Ordering", config.enableMessageOrdering ? "by ordering key" : "none"],
    ["Exactly-once", config.enableExactlyOnceDelivery ? "yes" : "no"],
    ["Ack deadline", duration(config.ackDeadlineSeconds ?? 10)],
    ["Retention", `${duration(config.messageRetentionDuration)}${config.retainAckedMessages ? ", including acknowledged messages" : ""}`],
    ["Expires", config.expirationPolicy?.ttl === undefined ? "never" : `after ${duration(config.expirationPolicy.ttl)} of inactivity`],
  ];
  if (config.pushConfig?.pushEndpoint) rows.push(["Endpoint", config.pushConfig.pushEndpoint]);
  if (config.deadLetterPolicy?.deadLetterTopic !== undefined) rows.push(["Dead letters", `to ${idOf(config.deadLetterPolicy.deadLetterTopic)} after ${config.deadLetterPolicy.maxDeliveryAttempts ?? 5} attempts`]);
  if (config.retryPolicy !== undefined) rows.push(["Retries", `after ${duration(config.retryPolicy.minimumBackoff)} to ${duration(config.retryPolicy.maximumBackoff)}`]);
  if (num(state?.generation) > 0) rows.push(["Seeks", count(state?.generation)]);
  return rows;
}
