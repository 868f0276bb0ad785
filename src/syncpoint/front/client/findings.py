"""Findings: why the subscribers of a subscription get nothing, or not all, and what to do.

Place: serves `syncpoint why` and the console, which ask for the facts; conclusions are drawn here, nobody is asked.
Promise: never without a finding, the one that explains most first. Says "may" where the answers leave it open.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from syncpoint.base.model.wording import counted

DELETED_TOPIC = "_deleted-topic_"


@dataclass(frozen=True)
class Obstacle:
    """One thing that stands in the way of messages, or that nothing does; `advice` may be empty."""

    cause: str
    text: str
    advice: str = ""


@dataclass
class Facts:
    """What the server answered about one subscription."""

    name: str
    """As it was typed: commands in the advice say it like this."""
    config: Any
    """google.pubsub.v1.Subscription."""
    state: Any
    """syncpoint.admin.v1.SubscriptionState."""
    rules: int | None = None
    """How many it has; None: not known."""
    send_suspended: bool | None = None
    """Of its topic; None: not known."""
    unknown: list[str] = field(default_factory=list)
    """What was not answered, in words, beside those processes that did not answer according to the state."""


def findings(facts: Facts) -> list[Obstacle]:
    """What explains it, the most likely first."""
    if facts.config.detached:
        advice = "Create another subscription: it gets what is published from then on."
        return [Obstacle("DETACHED", "It is detached from its topic, and gets nothing ever again.", advice)]
    found = [*_stopped(facts), *_consumed_elsewhere(facts), *_waiting(facts), *_coming(facts)]
    if found:
        return found
    if facts.unknown:
        return [Obstacle("NOT_KNOWN", "What did answer shows nothing wrong, but not all did.", "Ask again.")]
    if facts.state.backlog_messages:
        return [Obstacle("UNDER_WAY", "Nothing is wrong: messages are on their way.", "")]
    return [Obstacle("EMPTY", "Nothing is wrong: everything that it was to get is acknowledged.")]


def _stopped(facts: Facts) -> list[Obstacle]:
    """What keeps each and every message."""
    found = []
    if facts.state.options.receive_suspended:
        advice = f"syncpoint subscriptions update {facts.name} --resume"
        found.append(Obstacle("RECEIVE_SUSPENDED", "Receiving is suspended: nothing is handed out.", advice))
    if facts.state.unknown:
        text = (
            "Not every process answers, and messages that they have may wait: " + "; ".join(facts.state.unknown) + "."
        )
        found.append(Obstacle("NO_ANSWER", text, "Look at `syncpoint cluster status` and their logs."))
    return found


def _consumed_elsewhere(facts: Facts) -> list[Obstacle]:
    """List obstacles of subscriptions whose messages the server itself consumes."""
    config, state = facts.config, facts.state
    if state.delivery_advice:
        return [Obstacle("DELIVERY_REFUSED", "Its messages may not go where they go.", state.delivery_advice)]
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
        text = f"Its messages are forwarded to {to}, and wait: {state.forward.last_error}"
        return [Obstacle("FORWARD_WAITS", text, "See to that topic, or hand them out: --clear-forward.")]
    advice = f"To receive them here: syncpoint subscriptions update {facts.name} --clear-forward"
    return [Obstacle("FORWARDED", f"Its messages are forwarded to {to}, not handed out.", advice)]


def _pushed(facts: Facts) -> list[Obstacle]:
    push = facts.state.push
    if not facts.state.HasField("push"):
        return [_nobody("pushes")]
    if not push.HasField("pause") and not push.last_error:
        return []
    status = f"status {push.last_status}" if push.last_status else "no answer"
    text = f"{push.endpoint} does not take what is pushed (last: {status}): {push.last_error or 'no reason given'}."
    if push.HasField("pause"):
        text += f" Next try in {push.pause.ToTimedelta().total_seconds():.1f} s."
    return [Obstacle("PUSH_FAILING", text, "See to the endpoint; 102, 200, 201, 202 and 204 acknowledge a push.")]


def _nobody(does: str) -> Obstacle:
    return Obstacle("NOT_TAKEN", f"No process {does} it at present.", "It begins within seconds; if not: its logs.")


def _waiting(facts: Facts) -> list[Obstacle]:
    """Why messages that there are do not come."""
    config, state = facts.config, facts.state
    found = []
    if state.transform_advice:
        text = "Its transforms may not ask their model: messages come again instead of being handed out."
        found.append(Obstacle("TRANSFORMS_REFUSED", text, state.transform_advice))
    if state.dead_letter_advice:
        text = "Messages that used up their attempts cannot be moved to the dead letter topic."
        found.append(Obstacle("DEAD_LETTERS_REFUSED", text, state.dead_letter_advice))
    taken = config.push_config.push_endpoint or config.cloud_storage_config.bucket or state.options.forward_to
    waiting = max(0, state.backlog_messages - state.outstanding_messages)
    explaining = []  # what is out comes first where nothing else waits
    if not taken and not state.subscribers:
        text = f"Nobody is connected; {counted(state.backlog_messages, 'message')} not acknowledged{_age(state)}."
        advice = f"Start a subscriber, or: syncpoint subscriptions pull {facts.name}"
        explaining.append(Obstacle("NOBODY_CONNECTED", text, advice))
    if state.outstanding_messages:
        text = (
            f"{counted(state.outstanding_messages, 'message')} of {state.backlog_messages} out with subscribers, not "
            f"acknowledged{_age(state)}."
        )
        seconds = config.ack_deadline_seconds
        advice = f"They come again {seconds} s after they were handed out, or when a client that renews this stops."
        explaining.insert(len(explaining) if waiting else 0, Obstacle("OUT_WITH_SUBSCRIBERS", text, advice))
    found += explaining
    if waiting and (state.subscribers or taken) and not state.options.receive_suspended:
        may = ["the subscribers' flow control may be full"]
        if config.enable_message_ordering:
            may.append("earlier messages of their ordering keys may be unacknowledged")
        if config.HasField("retry_policy"):
            may.append("they may wait for the retry policy's backoff")
        text = f"{counted(waiting, 'message')} waiting{_age(state)}: " + ", or ".join(may) + "."
        found.append(Obstacle("BEHIND", text, f"syncpoint subscriptions peek {facts.name} shows them."))
    return found


def _coming(facts: Facts) -> list[Obstacle]:
    """Why no new messages come."""
    found = []
    topic = facts.config.topic
    if topic == DELETED_TOPIC:
        text = "Its topic is deleted: nothing new comes."
        found.append(Obstacle("TOPIC_DELETED", text, "Create topic and subscription again."))
    if facts.rules == 0:
        text = "It has no rules: no message that is published is selected."
        found.append(
            Obstacle("NO_RULES", text, f"syncpoint rules create NAME --subscription {facts.name} --filter ...")
        )
    if facts.send_suspended:
        text = f"Publishing to {topic} is suspended."
        found.append(Obstacle("SEND_SUSPENDED", text, f"syncpoint topics update {topic} --resume"))
    if facts.state.backlog_messages or facts.state.unknown or topic == DELETED_TOPIC:
        return found
    if all(one.next_offset <= one.start_offset for one in facts.state.sources):
        text = f"Nothing was published to {topic} since the subscription was created, as far as is kept."
        found.append(Obstacle("NOTHING_PUBLISHED", text, f"To try: syncpoint topics publish {topic} --message hello"))
    elif facts.config.filter:
        text = f"Nothing waits, and it has a filter: what does not match is acknowledged unseen: {facts.config.filter}"
        found.append(Obstacle("FILTERED", text, "Compare it with the attributes that publishers set."))
    return found


def _age(state: Any) -> str:
    if not state.HasField("oldest_unacked_age"):
        return ""
    return f", the oldest {state.oldest_unacked_age.ToTimedelta().total_seconds():.0f} s old"
