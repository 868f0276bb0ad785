"""Findings: why the subscribers of a subscription receive nothing, or not everything, and what to do.

Place: serves `syncpoint why` and the console. They query the server for the facts; this module only draws conclusions.
Promise: there is always a finding, the most likely cause first. Texts use "may" where the facts leave it open.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from syncpoint.base.model.wording import counted

DELETED_TOPIC = "_deleted-topic_"
RECENT_S = 120
REDELIVERED_MIN = 5
HISTORY = {"redelivered": "syncpoint_subscription_redelivered_total", "nacked": "syncpoint_subscription_nacked_total"}
"""Facts that history knows, and their families."""
_FAILING = ("DELIVERY_REFUSED", "PUSH_FAILING", "EXPORT_FAILING", "FORWARD_WAITS", "NOT_TAKEN")


@dataclass(frozen=True)
class Obstacle:
    """A reason why messages are not delivered, or that there is none; `advice` may be empty."""

    cause: str
    text: str
    advice: str = ""


@dataclass
class Facts:
    """What the server answered about one subscription."""

    name: str
    """The name as it was typed, for commands in the advice."""
    config: Any
    """google.pubsub.v1.Subscription."""
    state: Any
    """syncpoint.admin.v1.SubscriptionState."""
    rules: int | None = None
    """Number of rules; None if unknown."""
    send_suspended: bool | None = None
    """Whether publishing to its topic is suspended; None if unknown."""
    unknown: list[str] = field(default_factory=list)
    """Queries without an answer, in words, besides the processes that `state` lists as unreachable."""
    redelivered: float = 0.0
    """Redeliveries of the last `RECENT_S`, as far as history is kept; `nacked` of them were asked for."""
    nacked: float = 0.0


def findings(facts: Facts) -> list[Obstacle]:
    """The likely causes, the most likely first."""
    if facts.config.detached:
        advice = "Create another subscription; it receives messages published from then on."
        return [Obstacle("DETACHED", "It is detached from its topic and receives no more messages.", advice)]
    found = [*_stopped(facts), *_consumed_elsewhere(facts), *_waiting(facts), *_coming(facts)]
    if found:
        return found
    if facts.unknown:
        return [Obstacle("NOT_KNOWN", "No problem was found, but some queries failed.", "Run the command again.")]
    if facts.state.backlog_messages:
        return [Obstacle("UNDER_WAY", "No problem was found: messages are being delivered.", "")]
    return [Obstacle("EMPTY", "No problem was found: all messages are acknowledged.")]


def _stopped(facts: Facts) -> list[Obstacle]:
    """Obstacles that stop every message."""
    found = []
    if facts.state.home:
        text = f"Its home is {facts.state.home}, which delivers it: this site delivers nothing of it."
        advice = f"Subscribe at {facts.state.home}, or move its home: syncpoint federation home {facts.name} SITE"
        found.append(Obstacle("AT_HOME_ELSEWHERE", text, advice))
    elif facts.state.options.receive_suspended:
        advice = f"syncpoint subscriptions update {facts.name} --resume"
        found.append(Obstacle("RECEIVE_SUSPENDED", "Receiving is suspended: no messages are delivered.", advice))
    if facts.state.unknown:
        text = "Some processes do not answer; messages on them may be waiting: " + "; ".join(facts.state.unknown) + "."
        found.append(Obstacle("NO_ANSWER", text, "Check `syncpoint cluster status` and the logs of these processes."))
    return found


def _consumed_elsewhere(facts: Facts) -> list[Obstacle]:
    """List obstacles of subscriptions whose messages the server itself consumes."""
    config, state = facts.config, facts.state
    if state.delivery_advice:
        text = "The server is not permitted to deliver to the destination."
        return [Obstacle("DELIVERY_REFUSED", text, state.delivery_advice)]
    if config.push_config.push_endpoint:
        return _pushed(facts)
    if config.cloud_storage_config.bucket:
        if not state.HasField("export"):
            return [_nobody("exports")]
        if state.export.advice:
            text = f"Nothing is exported: {state.export.state}."
            return [Obstacle("EXPORT_FAILING", text, state.export.advice)]
        return []
    if not state.options.forward_to:
        return []
    to = state.options.forward_to
    if not state.HasField("forward"):
        return [_nobody("forwards")]
    if state.forward.last_error:
        text = f"Forwarding to {to} fails, so messages wait: {state.forward.last_error}"
        advice = f"Fix that topic, or stop forwarding: syncpoint subscriptions update {facts.name} --clear-forward"
        return [Obstacle("FORWARD_WAITS", text, advice)]
    advice = f"To receive them here: syncpoint subscriptions update {facts.name} --clear-forward"
    return [Obstacle("FORWARDED", f"Messages are forwarded to {to}, not delivered to subscribers.", advice)]


def _pushed(facts: Facts) -> list[Obstacle]:
    push = facts.state.push
    if not facts.state.HasField("push"):
        return [_nobody("pushes")]
    if not push.HasField("pause") and not push.last_error:
        return []
    status = f"status {push.last_status}" if push.last_status else "no answer"
    text = f"{push.endpoint} rejects pushes (last: {status}): {push.last_error or 'no reason given'}."
    if push.HasField("pause"):
        text += f" Next attempt in {push.pause.ToTimedelta().total_seconds():.1f} s."
    return [Obstacle("PUSH_FAILING", text, "Fix the endpoint; status 102, 200, 201, 202 or 204 acknowledges a push.")]


def _nobody(does: str) -> Obstacle:
    advice = "This starts within seconds; otherwise check the logs."
    return Obstacle("NOT_TAKEN", f"No process {does} its messages yet.", advice)


def _waiting(facts: Facts) -> list[Obstacle]:
    """Why stored messages are not delivered."""
    config, state = facts.config, facts.state
    found = []
    if state.transform_advice:
        text = "Its transforms are not permitted to call their model: messages are retried, not delivered."
        found.append(Obstacle("TRANSFORMS_REFUSED", text, state.transform_advice))
    if state.dead_letter_advice:
        text = "Messages that reached the maximum of delivery attempts cannot be moved to the dead letter topic."
        found.append(Obstacle("DEAD_LETTERS_REFUSED", text, state.dead_letter_advice))
    taken = config.push_config.push_endpoint or config.cloud_storage_config.bucket or state.options.forward_to
    waiting = max(0, state.backlog_messages - state.outstanding_messages)
    again = _redelivered(facts)
    explaining = []  # what is out comes first where nothing else waits
    if not taken and not state.subscribers:
        text = f"No subscriber connected; {counted(state.backlog_messages, 'message')} not acknowledged{_age(state)}."
        advice = f"Start a subscriber, or: syncpoint subscriptions pull {facts.name}"
        explaining.append(Obstacle("NOBODY_CONNECTED", text, advice))
    if state.outstanding_messages:
        text = (
            f"{counted(state.outstanding_messages, 'message')} of {state.backlog_messages} delivered but not "
            f"acknowledged{_age(state)}."
        )
        seconds = config.ack_deadline_seconds
        advice = f"They are redelivered {seconds} s after delivery, or when the client stops extending their leases."
        explaining.insert(len(explaining) if waiting else 0, Obstacle("OUT_WITH_SUBSCRIBERS", text, advice))
    found += again + explaining
    if waiting and (state.subscribers or taken) and not _is_held(facts):
        may = [] if taken or again else ["the subscribers' flow control may be full"]
        if config.enable_message_ordering:
            may.append("earlier messages of their ordering keys may be unacknowledged")
        if config.HasField("retry_policy"):
            may.append("they may wait for the retry policy's backoff")
        reasons = ": " + ", or ".join(may) if may else ""
        text = f"{counted(waiting, 'message')} waiting{_age(state)}{reasons}."
        if may or not again:
            found.append(Obstacle("BEHIND", text, f"syncpoint subscriptions peek {facts.name} lists them."))
    return found


def _is_held(facts: Facts) -> bool:
    """Whether something else is known to keep all messages: a suspension, or a push, export or forward that fails."""
    if facts.state.options.receive_suspended or facts.state.home:
        return True
    return any(one.cause in _FAILING for one in _consumed_elsewhere(facts))


def _redelivered(facts: Facts) -> list[Obstacle]:
    """Messages that come again and again."""
    config = facts.config
    if facts.redelivered < REDELIVERED_MIN or not facts.state.backlog_messages:
        return []
    text = f"Messages come again and again: {facts.redelivered:.0f} redeliveries within {RECENT_S / 60:g} minutes"
    text += f", {facts.nacked:.0f} of them nacked." if facts.nacked else ", none nacked: their ack deadline ran out."
    advice = []
    if not config.HasField("retry_policy"):
        advice.append(f"pause between attempts: syncpoint subscriptions update {facts.name} --min-retry-delay 10s")
    if not config.dead_letter_policy.dead_letter_topic:
        advice.append(
            f"take out poison messages: syncpoint subscriptions update {facts.name} --dead-letter-topic TOPIC"
        )
    if not advice:
        advice.append(f"they go to the dead-letter topic after all attempts; syncpoint subscriptions peek {facts.name}")
    joined = "; ".join(advice)
    return [Obstacle("REDELIVERED", text, joined[0].upper() + joined[1:])]


def _coming(facts: Facts) -> list[Obstacle]:
    """Why no new messages arrive."""
    found = []
    topic = facts.config.topic
    if topic == DELETED_TOPIC:
        text = "Its topic is deleted: no new messages arrive."
        found.append(Obstacle("TOPIC_DELETED", text, "Create the topic and the subscription again."))
    if facts.rules == 0:
        text = "The subscription has no rules, so it selects no messages."
        found.append(
            Obstacle("NO_RULES", text, f"syncpoint rules create NAME --subscription {facts.name} --filter ...")
        )
    if facts.send_suspended:
        text = f"Publishing to {topic} is suspended."
        found.append(Obstacle("SEND_SUSPENDED", text, f"syncpoint topics update {topic} --resume"))
    if facts.state.backlog_messages or facts.state.unknown or topic == DELETED_TOPIC:
        return found
    if all(one.next_offset <= one.start_offset for one in facts.state.sources):
        text = f"No retained message was published to {topic} after the subscription was created."
        found.append(Obstacle("NOTHING_PUBLISHED", text, f"To try: syncpoint topics publish {topic} --message hello"))
    elif facts.config.filter:
        text = f"No messages wait. Messages that do not match its filter are acknowledged: {facts.config.filter}"
        found.append(Obstacle("FILTERED", text, "Compare the filter with the attributes that publishers set."))
    return found


def _age(state: Any) -> str:
    if not state.HasField("oldest_unacked_age"):
        return ""
    return f", the oldest {state.oldest_unacked_age.ToTimedelta().total_seconds():.0f} s old"


def history_asked(subscription: str, family: str, now_s: int) -> Any:
    """The QueryHistoryRequest for one of `HISTORY`. `subscription`: its full name."""
    from syncpoint.wire.protobuf.messages import admin

    _, project, _, short = subscription.split("/", 3)
    asked = admin.QueryHistoryRequest(family=family, labels=[f"project={project}", f"subscription={short}"])
    asked.start_time.FromSeconds(now_s - RECENT_S)
    asked.step.FromSeconds(10)
    return asked


def counted_in(history: Any) -> float:
    """How much a counter grew, by a QueryHistoryResponse."""
    step_s = float(history.step.seconds)
    return math.fsum(value * step_s for one in history.series for value in one.values if not math.isnan(value))
