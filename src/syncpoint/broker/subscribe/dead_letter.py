"""Dead letters: a message that was delivered too often, outlived its time to live, or was given up for another reason,
goes to another topic.

It is published there with a new id, its data, ordering key and attributes, without a time to live (it waits for
somebody to look at it), and with attributes that say where it came from and why: the four of Pub/Sub, and four more
(all left out where the message would outgrow a limit with them). It is known by the copy that it was made from, as a
forward is: however often it is published, it is stored once. Only when that is persisted the original is
acknowledged. A letter begins anew: it may be forwarded as often as a message that was just published; letters that the
server makes by itself count on their own, so that a circle of them ends, and together with forwards (`own_copies`). If
the topic is missing, or the publish fails or is not allowed, the original is offered again instead: nothing is lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial

from syncpoint.base.kernel import frames
from syncpoint.base.kernel.acks import encode_runs
from syncpoint.base.kernel.filters import matches
from syncpoint.base.model.delivery import Batch, passed_over
from syncpoint.base.model.errors import FailedPrecondition, InvalidArgument, ResourceExhausted, Unavailable
from syncpoint.base.model.lanes import lane_of
from syncpoint.base.model.limits import ATTRIBUTE_VALUE_BYTES_MAX
from syncpoint.base.model.names import project_of, short_id
from syncpoint.base.model.reserved import COUNTS, FORWARD_COPIES, FORWARDED_FROM, LETTERS, count_of, derive_identity
from syncpoint.broker.recording.record_kinds import DEAD_LETTERED, EXPIRED
from syncpoint.broker.subscribe.confirm import CopyId
from syncpoint.broker.subscribe.delivery import Delivery
from syncpoint.broker.subscribe.own_copies import TOO_MANY, share_of
from syncpoint.broker.subscribe.rule_work import Judged
from syncpoint.broker.subscribe.shared_state import Reason, WhenOver
from syncpoint.catalog.metadata.records import Subscription
from syncpoint.wire.protobuf.messages import pubsub

PREFIX = "CloudPubSubDeadLetterSource"
TIME_TO_LIVE = "sys.TimeToLive"
REASON, DESCRIPTION = "sys.DeadLetterReason", "sys.DeadLetterErrorDescription"
SOURCE, MESSAGE_ID = "sys.DeadLetterSource", "sys.DeadLetterMessageId"
TOO_OFTEN = "MaxDeliveryCountExceeded"
LETTERS_MAX = 4
"""How often a message was a dead letter when the server makes no further one of it by itself, until it is redriven."""
BY_ITSELF = frozenset(
    (
        "TTLExpiredException", "FilterEvaluationException", "RuleActionException", "HeaderSizeExceeded",
        "MaxTransferHopCountExceeded", "ForwardingRefused",
    )
)  # fmt: skip
"""Reasons for which the server gives up what nobody has received."""
IN_A_CIRCLE = (
    f"The message was already dead-lettered {LETTERS_MAX} times: dead-letter topics form a circle. Change the"
    " dead-letter topic of one of the subscriptions."
)


def dead_letter(
    delivery: Delivery,
    source: int,
    offset: int,
    attempts: int,
    reason: Reason | None,
    when_over: WhenOver | None = None,
    *,
    refusal: str = "",
    among: int = 1,
) -> None:
    """Move one message of the subscription to its dead-letter topic, unless there is a `refusal`. `among`: how many
    copies the service makes of it. `reason` None: it was delivered too often. What became of it comes later, by
    `when_over`; nothing is raised."""
    record, leases, publish = delivery.record, delivery.leases, delivery.publish
    policy, runs, copy = record.dead_letter, encode_runs([(offset, 1)]), CopyId(source, offset, leases.generation)

    def keep(why: Exception) -> None:
        delivery.state.counts.dead_letters_failed += 1
        if leases.order is not None and leases.order.knows((source, offset)):
            leases.order.unblock((source, offset))
        else:
            leases.redelivery.add(source, offset, at=delivery.now() + 1.0)
        ended(why)

    def ended(error: Exception | None) -> None:
        leases.letters.ended((source, offset))
        delivery.wake()
        if when_over is not None:
            when_over(error)

    def fetched(batches: Sequence[Batch] | Exception, judged: Judged | None = None) -> None:
        rules = delivery.reader.rules
        if not isinstance(batches, Exception):
            if rules.elsewhere(batches, offset + 1, partial(finished, batches), judged=judged):
                return
            try:
                batches = rules.applied(batches, offset + 1, given_up=True, judged=judged)
            except ResourceExhausted as error:
                batches = error
        batch = None if isinstance(batches, Exception) else next((b for b in batches if b.begin == offset), None)
        if batch is not None and batch.skips(offset):
            batch = None
        unread = isinstance(batches, Exception) or any(begin <= offset < end for begin, end in passed_over(batches))
        if policy is None or unread:
            keep(batches if isinstance(batches, Exception) else Unavailable("The message cannot be read now."))
        elif batch is None:  # acknowledged in the meantime, or deleted; if it is neither, it must not become so by this
            leases.discharge(source, runs)
            ended(FailedPrecondition("The message was acknowledged or deleted in the meantime."))
        else:
            message = frames.message_at(batch.payload, offset - batch.first_offset)
            program = delivery.state.program_of(offset)
            if program and not matches(program, message):
                done(b"")  # it has run out, and nobody was to have it
                return

            left = share_of(message, among)

            def answered(answer: bytes | Exception) -> None:
                if isinstance(answer, InvalidArgument):  # with our attributes it is too large: better without them
                    publish.publish(policy[0], letter(message, record, copy, None, left=left), done)
                else:
                    done(answer)

            if why := stays(record, message, reason, left):
                keep(FailedPrecondition(why))
                return
            publish.publish(policy[0], letter(message, record, copy, attempts, reason, left=left), answered)

    def finished(batches: Sequence[Batch], found: Judged | Exception) -> None:
        if isinstance(found, Exception):
            keep(found)
        else:
            fetched(batches, found)

    def note(answer: bytes) -> None:
        if record.topic_incarnation not in delivery.state.recorder.topics or policy is None:
            return
        if not answer:
            delivery.state.note(EXPIRED, leases.generation, source, [(offset, 1)])
            return
        new = pubsub.PublishResponse.FromString(answer).message_ids
        delivery.state.note(
            DEAD_LETTERED,
            leases.generation,
            source,
            [(offset, 1)],
            why=TOO_OFTEN if reason is None else reason.name,
            to=policy[0],
            message_id=new[0] if new else "",
        )

    def done(answer: bytes | Exception) -> None:
        if isinstance(answer, Exception):
            keep(answer)
        else:
            delivery.state.counts.dead_letters += bool(answer)
            note(answer)
            leases.drop(source, runs)
            ended(None)

    if refusal:
        keep(FailedPrecondition(refusal))
    else:
        publish.fetch(record.incarnation, source, offset, 1, fetched)


def letter(
    message: bytes,
    record: Subscription,
    copy: CopyId,
    attempts: int | None,
    reason: Reason | None = None,
    *,
    left: int | None,
) -> bytes:
    """The PublishRequest that carries a dead message (a serialised PubsubMessage) of a subscription with a dead-letter
    policy. It is known by its copy: whoever publishes it again, it is stored once. `attempts` None: as it came, without
    attributes that say so. `reason` None: it was delivered too often. `left`: see `own_copies.share`.
    """
    assert record.dead_letter is not None
    subscription, topic = record.name, record.dead_letter.topic
    dead = pubsub.PubsubMessage.FromString(message)
    published = dead.publish_time.ToNanoseconds()
    when = datetime.fromtimestamp(published // 1_000_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    message_id = dead.message_id
    dead.ClearField("message_id")
    dead.ClearField("publish_time")
    dead.attributes.pop(TIME_TO_LIVE, None)
    letters = count_of(dead.attributes, LETTERS)
    for name in COUNTS:
        dead.attributes.pop(name, None)
    dead.attributes[LETTERS] = str(letters + 1)
    if left is not None:
        dead.attributes[FORWARD_COPIES] = str(max(0, left))
    dead.attributes[FORWARDED_FROM] = f"dead/{copy.named(record.incarnation)}"
    derive_identity(dead.attributes, "dead", subscription, copy.generation, lane_of(copy.place))
    if attempts is None:
        return bytes(pubsub.PublishRequest(topic=topic, messages=[dead]).SerializeToString())
    dead.attributes[f"{PREFIX}DeliveryCount"] = str(attempts)
    dead.attributes[f"{PREFIX}Subscription"] = short_id(subscription)
    dead.attributes[f"{PREFIX}SubscriptionProject"] = project_of(subscription).removeprefix("projects/")
    dead.attributes[f"{PREFIX}TopicPublishTime"] = f"{when}.{published // 1_000_000 % 1000:03d}Z"
    reason = reason or Reason(TOO_OFTEN, f"The message was delivered {attempts} times and not acknowledged.")
    dead.attributes[REASON] = reason.name
    dead.attributes[DESCRIPTION] = cut(reason.description)
    dead.attributes[SOURCE] = subscription
    dead.attributes[MESSAGE_ID] = message_id
    return bytes(pubsub.PublishRequest(topic=topic, messages=[dead]).SerializeToString())


def stays(record: Subscription, message: bytes, reason: Reason | None, left: int | None) -> str:
    """Why no letter is made of a message (a serialised PubsubMessage) that nobody asks for; "": one may be. What
    somebody has received in vain, or gives up, becomes a letter always. The server itself receives in vain what it may
    not forward."""
    if reason is None:
        by_itself = bool(record.options.forward_to)
    else:
        by_itself = reason.name in BY_ITSELF
    if by_itself and left is not None and left < 0:
        return f"A message waits: {TOO_MANY}"
    return IN_A_CIRCLE if reason is not None and goes_round(message, reason) else ""


def goes_round(message: bytes, reason: Reason) -> bool:
    """Whether a message (a serialised PubsubMessage) was a letter too often for one more that nobody asks for."""
    if reason.name not in BY_ITSELF or LETTERS.encode() not in message:
        return False
    return count_of(pubsub.PubsubMessage.FromString(message).attributes, LETTERS) >= LETTERS_MAX


def cut(text: str) -> str:
    """As much of a text as an attribute may have."""
    return text.encode()[:ATTRIBUTE_VALUE_BYTES_MAX].decode(errors="ignore")
