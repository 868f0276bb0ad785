// Test messages, pulled: they are leased to this page, and acknowledged or given back by hand.

import { useMutation } from "@tanstack/react-query";
import { useState } from "react";

import { call } from "../api/client";
import type { ReceivedMessage } from "../api/types";
import { shell } from "../lib/copies";
import { idOf, plural, projectOf, time } from "../lib/format";
import { CopyAs } from "./CopyAs";
import { MessageView } from "./MessageView";
import { Badge, Card, Empty, Field, Problem } from "./parts";

export function Pull({ subscription }: { subscription: string }) {
  const [most, setMost] = useState("5");
  const [messages, setMessages] = useState<ReceivedMessage[]>([]);
  const [done, setDone] = useState("");
  const request = { subscription, maxMessages: Number(most), returnImmediately: true };
  const pulled = useMutation({
    mutationFn: () => call<{ receivedMessages?: ReceivedMessage[] }>("Subscriber.Pull", request),
    onSuccess: (found) => {
      setMessages((before) => [...(found.receivedMessages ?? []), ...before]);
      setDone((found.receivedMessages ?? []).length === 0 ? "No messages available." : "");
    },
  });
  const settled = useMutation({
    mutationFn: async ({ ackIds, ack }: { ackIds: string[]; ack: boolean }) => {
      if (ack) await call("Subscriber.Acknowledge", { subscription, ackIds });
      else await call("Subscriber.ModifyAckDeadline", { subscription, ackIds, ackDeadlineSeconds: 0 });
      return { ackIds, ack };
    },
    onSuccess: ({ ackIds, ack }) => {
      setMessages((before) => before.filter((one) => !ackIds.includes(one.ackId)));
      setDone(`${plural(ackIds.length, "message")} ${ack ? "acknowledged" : "returned"}.`);
    },
  });
  const all = messages.map((one) => one.ackId);
  return (
    <Card
      title="Pull"
      note="pulled messages are withheld from other subscribers until their ack deadline"
      actions={<CopyAs cli={`syncpoint subscriptions pull ${shell(idOf(subscription))} --project ${shell(projectOf(subscription))} --limit ${most}`} method="Subscriber.Pull" request={request} />}
    >
      <form
        className="filters bare"
        onSubmit={(event) => {
          event.preventDefault();
          pulled.mutate();
        }}
      >
        <Field label="Maximum messages">{(id) => <input id={id} type="number" min="1" max="100" value={most} onChange={(event) => setMost(event.target.value)} />}</Field>
        <button type="submit" className="primary" disabled={pulled.isPending}>
          Pull
        </button>
        {messages.length > 0 && (
          <>
            <button type="button" onClick={() => settled.mutate({ ackIds: all, ack: true })}>
              Acknowledge all
            </button>
            <button type="button" onClick={() => settled.mutate({ ackIds: all, ack: false })}>
              Return all
            </button>
          </>
        )}
      </form>
      {pulled.isError && <Problem error={pulled.error} />}
      {settled.isError && <Problem error={settled.error} />}
      {done !== "" && (
        <p className="note" role="status">
          {done}
        </p>
      )}
      {messages.length === 0 && done === "" && <Empty>No messages pulled yet. To view messages without pulling them, open Messages.</Empty>}
      {messages.map((one) => (
        <details key={one.ackId} className="received" open={messages.length === 1}>
          <summary>
            <span className="mono">{one.message.messageId}</span> <span className="muted">{time(one.message.publishTime)}</span>{" "}
            {(one.deliveryAttempt ?? 0) > 1 && <Badge tone="warn">attempt {one.deliveryAttempt}</Badge>}
          </summary>
          <MessageView message={one.message} />
          <p className="row">
            <button type="button" onClick={() => settled.mutate({ ackIds: [one.ackId], ack: true })}>
              Acknowledge
            </button>
            <button type="button" onClick={() => settled.mutate({ ackIds: [one.ackId], ack: false })}>
              Return
            </button>
          </p>
        </details>
      ))}
    </Card>
  );
}
