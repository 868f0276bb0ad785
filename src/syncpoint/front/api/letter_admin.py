"""Dead letters by hand: giving messages up, looking at letters, and publishing them again.

Place: a part of syncpoint.admin.v1, mounted by `server_admin`. Letters are found by `peek_admin`, and moved by
`letter_moves`; the attributes of a letter are `subscribe.dead_letter`'s.
Promise: a letter is acknowledged once what was published of it is persisted, and not before: who is broken off begins
again; what was published before is known by the letter it was, for an hour. What a seek of the letters' subscription
brings back in the meantime stays, and is published again by the next redrive. Letters of a key are published in their
order; after one that fails, later ones of its key stay. A client that receives from the subscription at the same time
may receive a letter, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial

from syncpoint.base.kernel.acks import encode_runs
from syncpoint.base.model.errors import (
    Code,
    FailedPrecondition,
    InvalidArgument,
    SyncpointError,
    Unavailable,
    suspended,
)
from syncpoint.base.model.limits import ACK_REQUEST_BYTES_MAX, ATTRIBUTE_VALUE_BYTES_MAX
from syncpoint.base.model.names import project_of
from syncpoint.base.model.reserved import FORWARDED_FROM, derive_identity
from syncpoint.base.runtime.child_processes import worked
from syncpoint.broker.subscribe.lane_rules import LAZY_CHARS
from syncpoint.broker.subscribe.rule_work import AT_ONCE_CHARS
from syncpoint.catalog.metadata.records import Subscription, Topic
from syncpoint.front.api.letter_edits import Choice, Found, LetterEdit, chosen
from syncpoint.front.api.letter_texts import letter_of, since_ns_of
from syncpoint.front.api.options_admin import Handlers, OptionsAdmin, admin_table
from syncpoint.front.api.peek_admin import AskingChains, PeekAdmin, PeekedCopy
from syncpoint.front.api.validate import refused
from syncpoint.wire.protobuf.messages import admin, internal, pubsub
from syncpoint.wire.transport.calls import Methods

REQUEST_BYTES = 1 << 20
"""Of letters that are published together, beyond the first one."""

Prepare = Callable[[Topic, bytes], Awaitable[bytes]]
GiveUp = Callable[[Subscription, internal.DeadLetterRequest], Awaitable[internal.DeadLetterResponse]]
Publish = Callable[[str, bytes], Awaitable[bytes]]


async def _nobody(subscription: Subscription, request: internal.DeadLetterRequest) -> internal.DeadLetterResponse:
    raise Unavailable("This process does not deliver messages. Call a subscribe forwarder or a proxy.")


async def _nowhere(topic: str, request: bytes) -> bytes:
    raise Unavailable("This process does not accept messages. Call a publish forwarder or a proxy.")


async def _unprepared(topic: Topic, request: bytes) -> bytes:
    raise Unavailable("This process does not check messages. Call a proxy.")


class LetterAdmin:
    """These methods on messages; `methods()` serves them on bytes. `give_up`: asks the forwarder that lent the
    messages;
    `publish`: (topic, PublishRequest) as the service itself publishes, what was accepted before; `prepare`: a
    PublishRequest with new data as the topic stores it, checked and, where that is done, sealed."""

    def __init__(self, options: OptionsAdmin, peeks: PeekAdmin, asking: AskingChains) -> None:
        self._options, self._peeks, self._asking = options, peeks, asking
        self.give_up: GiveUp = _nobody
        self.publish: Publish = _nowhere
        self.prepare: Prepare = _unprepared

    def methods(self) -> Methods:
        """The method table."""
        table: Handlers = {
            "DeadLetterMessages": self.dead_letter_messages,
            "ListDeadLetters": self.list_dead_letters,
            "RedriveDeadLetters": self.redrive_dead_letters,
        }
        return admin_table(self._options.control, table)

    async def dead_letter_messages(self, request: admin.DeadLetterMessagesRequest) -> admin.DeadLetterMessagesResponse:
        """DeadLetterMessages."""
        record = self._options.subscription(request.subscription)
        if not request.ack_ids:
            raise InvalidArgument("ack_ids", "No ack ids specified.")
        if request.ByteSize() > ACK_REQUEST_BYTES_MAX:
            raise InvalidArgument(
                "ack_ids", f"The request must not be larger than {ACK_REQUEST_BYTES_MAX} bytes. Split it."
            )
        if not request.reason:
            raise refused("reason", "reason must be set: a word for why the messages are dead-lettered")
        for field in ("reason", "description"):
            if len(getattr(request, field).encode()) > ATTRIBUTE_VALUE_BYTES_MAX:
                raise refused(field, f"{field} must not be longer than {ATTRIBUTE_VALUE_BYTES_MAX} bytes")
        asked = internal.DeadLetterRequest(
            subscription=record.name,
            ack_ids=dict.fromkeys(request.ack_ids),
            reason=request.reason,
            description=request.description,
        )
        answer = await self.give_up(record, asked)
        failures = [
            admin.DeadLetterFailure(ack_id=one.ack_id, invalid=one.invalid, reason=one.reason) for one in answer.failed
        ]
        return admin.DeadLetterMessagesResponse(moved=len(set(request.ack_ids)) - len(failures), failures=failures)

    async def list_dead_letters(self, request: admin.ListDeadLettersRequest) -> admin.ListDeadLettersResponse:
        """ListDeadLetters."""
        record = self._letters_of(request.selection)
        found, token, unknown = await self._peeks.copies(
            record, since_ns_of(request.selection), request.page_size, request.page_token
        )
        shown = await self._peeks.opened(list(await self._chosen(record, request.selection, "", found)), unknown)
        letters = [letter_of(one.message) for one in shown]
        return admin.ListDeadLettersResponse(letters=letters, next_page_token=token, unknown=unknown)

    async def redrive_dead_letters(self, request: admin.RedriveDeadLettersRequest) -> admin.RedriveDeadLettersResponse:
        """RedriveDeadLetters."""
        record, target = self._letters_of(request.selection), self._target(request)
        found, token, unknown = await self._peeks.copies(
            record, since_ns_of(request.selection), request.page_size, request.page_token
        )
        choices = await self._chosen(record, request.selection, request.action, found)
        edit = LetterEdit({one.copy: choice for one, choice in choices.items()}, request.data)
        selected = parsed(choices)
        letters = []
        for _, message in selected:
            letters.append(letter_of(message))
            letters[-1].message.ClearField("data")  # it may be sealed, and nobody asked for it
        answer = admin.RedriveDeadLettersResponse(
            letters=letters, failures=unknown, next_page_token=token, topic=target.name
        )
        for copy, message in selected if request.action else ():
            possible, _ = edit.possible([(copy, message)])
            shown = edit.published(copy, message) if possible else pubsub.PubsubMessage()
            shown.ClearField("data")
            answer.published.append(shown)
        answer.time.FromNanoseconds(self._options.control.clock.time_ns())
        if not request.dry_run:
            by_key: dict[str, list[Found]] = {}
            for one in selected:
                by_key.setdefault(one[1].ordering_key, []).append(one)
            answer.redriven = sum(
                await asyncio.gather(
                    *(self._redriven(record, target, found, edit, answer.failures.append) for found in by_key.values())
                )
            )
        return answer

    # -- shared ------------------------------------------------------------------------------------------------------

    async def _chosen(
        self, record: Subscription, asked: admin.DeadLetterSelection, action: str, found: Sequence[PeekedCopy]
    ) -> dict[PeekedCopy, Choice]:
        """Letters that are wanted, and what the action makes of them. Raises `InvalidArgument`."""
        chars = len(asked.filter) + len(action)
        large = chars > LAZY_CHARS or chars * len(found) > AT_ONCE_CHARS
        work = partial(chosen, asked.SerializeToString(), action, found)
        choices = await worked(self._peeks.apart, project_of(record.name), work, large=large)
        return {one: choice for one, choice in zip(found, choices, strict=True) if choice is not False}

    def _letters_of(self, asked: admin.DeadLetterSelection) -> Subscription:
        record = self._options.subscription(asked.subscription)
        if asked.source and asked.source == asked.subscription:
            raise refused(
                "selection.source",
                "selection.source must be another subscription: the one whose messages were dead-lettered",
            )
        return record

    def _target(self, request: admin.RedriveDeadLettersRequest) -> Topic:
        """Where letters go. Raises `NotFound`, `InvalidArgument`, `FailedPrecondition`."""
        catalog, source = self._options.control.catalog, None
        if request.selection.source:
            source = catalog.subscription(request.selection.source)
        if request.topic:
            target = self._options.topic(request.topic)
        elif source is None or (own := catalog.topic_of(source)) is None:
            raise refused(
                "topic", "topic must be set, or selection.source must name a subscription whose topic still exists"
            )
        else:
            target = own
        if target.options.send_suspended:
            raise suspended(target.name, elsewhere=target.options.written_elsewhere)
        home = None if source is None else source.topic_incarnation
        if target.schema is not None and target.incarnation != home:
            raise FailedPrecondition(
                f"{target.name} has a schema, and dead letters of another topic may not match it. Receive them with a"
                " client and publish those that match."
            )
        letters = catalog.subscription(request.selection.subscription)
        if letters is not None and letters.topic_incarnation == target.incarnation:
            raise FailedPrecondition(f"{target.name} is the topic that the dead letters are in. Name another topic.")
        return target

    async def _redriven(
        self,
        record: Subscription,
        target: Topic,
        found: Sequence[Found],
        edit: LetterEdit,
        failed: Callable[[str], None],
    ) -> int:
        """Publish letters of one key, or of none, and acknowledge them. How many it were."""
        count = 0
        found, why = edit.possible(found)
        if why:
            failed(f"the action failed for a dead letter, so it and later ones of its key were not published: {why}")
        for part in parts_of(found, edit):
            done, error = await self._published(record, target, part, edit)
            if done:
                try:
                    await self._acknowledge_seen(record, [copy for copy, _ in done])
                except SyncpointError as late:
                    failed(
                        f"{len(done)} dead letters were published but not acknowledged, so they will be delivered"
                        " again:"
                        f" {late.message}"
                    )
                    return count
            count += len(done)
            if error is not None:
                left = len(found) - count
                failed(f"{left} dead letters were not published: {error.message}")
                return count
        return count

    async def _published(
        self, record: Subscription, target: Topic, part: Sequence[Found], edit: LetterEdit
    ) -> tuple[Sequence[Found], SyncpointError | None]:
        """What was published, the first of them; and why others were not."""
        try:
            request = _request(record, target, part, edit)
            if edit.replaces(part[0][1]):
                request = await self.prepare(target, request)
            await self.publish(target.name, request)
        except SyncpointError as error:
            if error.code is not Code.INVALID_ARGUMENT or len(part) == 1:
                return (), error
        else:
            return part, None
        for at, one in enumerate(part):  # one of them is refused: those before it are not
            done, why = await self._published(record, target, [one], edit)
            if not done:
                return part[:at], why
        return part, None

    async def _acknowledge_seen(self, record: Subscription, copies: Iterable[PeekedCopy]) -> None:
        places: dict[tuple[int, int, int], list[tuple[int, int]]] = {}
        for chain, copy, _ in copies:
            places.setdefault((chain, copy.source, copy.generation), []).append((copy.place, 1))
        for (chain, source, generation), runs in places.items():
            asked = internal.AcknowledgeSeenRequest(
                subscription=record.incarnation, source=source, runs=encode_runs(sorted(runs)), generation=generation
            )
            await self._asking.acknowledge_seen(chain, asked)


def parsed(copies: Iterable[PeekedCopy]) -> list[Found]:
    """With each copy its message."""
    return [(one, pubsub.PubsubMessage.FromString(one.message)) for one in copies]


def parts_of(found: Sequence[Found], edit: LetterEdit) -> Iterator[Sequence[Found]]:
    """What is published together: new data, which has to be checked, apart from what was accepted before."""
    begin = size = 0
    for at, (copy, letter) in enumerate(found):
        replaced, nbytes = edit.replaces(letter), edit.size(copy, letter)
        if at > begin and (size + nbytes > REQUEST_BYTES or replaced != edit.replaces(found[begin][1])):
            yield found[begin:at]
            begin, size = at, 0
        size += nbytes
    if begin < len(found):
        yield found[begin:]


def _request(record: Subscription, target: Topic, part: Sequence[Found], edit: LetterEdit) -> bytes:
    """Each message names the letter, with its seek generation, that it was: what is published again after a break is
    known by that, and what a seek brings back is not.
    """
    messages = [edit.published(*one) for one in part]
    for message, (copy, _) in zip(messages, part, strict=True):
        message.attributes[FORWARDED_FROM] = f"letter/{copy.copy.named(record.incarnation)}"
        derive_identity(message.attributes, "again", record.name, copy.copy.generation)
    return bytes(pubsub.PublishRequest(topic=target.name, messages=messages).SerializeToString())
