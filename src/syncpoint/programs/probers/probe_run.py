"""One run of a prober at one endpoint: the calls it makes, with their deadlines, noted in its history.

Place: between the scripts and the network; public methods alone, by our own channel.
Promise: no call is made again, so what a client without retries would see is what is noted; only a stream that the
server ends, as servers may at any time, is opened anew. Every step ends within its deadline. What a run made is
deleted, also after a failure; where that fails, `leftovers` does it later.
Leaves to `judgement`: what of all this is as expected.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from syncpoint.base.model.errors import Code, SyncpointError
from syncpoint.front.client.client import Target
from syncpoint.programs.probers.probe_history import ArrivedMessage, ProbeHistory, SentMessage
from syncpoint.programs.probers.probe_names import ProbeNames
from syncpoint.programs.probers.prober_table import ProberSpec
from syncpoint.programs.probers.push_receiver import PushReceiver
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import pubsub, well_known
from syncpoint.wire.protobuf.methods import Method
from syncpoint.wire.transport.client import Channel

ACK_DEADLINE_S: Final = 10
RETENTION_S: Final = 600
UNUSED_S: Final = 86_400  # the shortest life of a subscription that nobody uses: the last net under what is left over
DELETE_S: Final = 3.0
REOPEN_S: Final = 0.2
PAYLOAD_BYTES: Final = 200


class StepFailed(Exception):
    """A step did not end as it should; the text is for operators, and ends the run. `code`: that of a refused call."""

    def __init__(self, text: str, code: Code | None = None) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True)
class ProbedEndpoint:
    """Where one proxy or server is, and how to connect to it."""

    address: str
    target: Target


@dataclass(frozen=True)
class ProbeSurroundings:
    """What all runs share. `endpoints`: all that were given; `copy`: where federated copies arrive, and in which
    project; `deadline_s`: of a step; `patience`: multiplies the limits of durations.
    """

    project: str
    endpoints: tuple[ProbedEndpoint, ...]
    deadline_s: float
    push: PushReceiver | None = None
    copy: ProbedEndpoint | None = None
    copy_project: str = ""
    patience: float = 1.0


class ProbeRun:
    """Run one prober at one endpoint. `endpoint`: the one this run is about."""

    def __init__(
        self, spec: ProberSpec, endpoint: ProbedEndpoint, around: ProbeSurroundings, names: ProbeNames
    ) -> None:
        self.spec, self.endpoint, self.around, self.names = spec, endpoint, around, names
        self.history = ProbeHistory(names.run)
        self.deadline_s = around.deadline_s
        self._loop = asyncio.get_running_loop()
        self._channels: dict[str, Channel] = {}
        self._made: list[tuple[Method, Any, ProbedEndpoint]] = []  # how to delete what was made

    def now(self) -> float:
        """The time of this run's history."""
        return self._loop.time()

    @property
    def others(self) -> tuple[ProbedEndpoint, ...]:
        """The endpoints after this one in the order in which they were given, round and round."""
        known = self.around.endpoints
        at = next(index for index, one in enumerate(known) if one.address == self.endpoint.address)
        return (*known[at + 1 :], *known[:at])

    # -- calls -------------------------------------------------------------------------------------------------------

    def channel(self, endpoint: ProbedEndpoint | None = None) -> Channel:
        """The connection to an endpoint; each run has new ones."""
        place = endpoint or self.endpoint
        if place.address not in self._channels:
            self._channels[place.address] = place.target.open()
        return self._channels[place.address]

    async def leave(self, endpoint: ProbedEndpoint) -> None:
        """End the connection, whatever is under way; another one may be opened."""
        channel = self._channels.pop(endpoint.address, None)
        if channel is not None:
            await channel.close()

    async def ask(self, method: Method, request: Any, at: ProbedEndpoint | None = None) -> Any:
        """One call. Raises `SyncpointError`."""
        place = at or self.endpoint
        answer = await self.channel(place).unary(
            method, request.SerializeToString(), metadata=place.target.metadata(), timeout=self.deadline_s
        )
        return method.response.FromString(answer)

    async def call(self, method: Method, request: Any, *, step: str = "", at: ProbedEndpoint | None = None) -> Any:
        """One call, whose duration is noted as `step`. Raises `StepFailed`."""
        begun = self.now()
        try:
            answer = await self.ask(method, request, at)
        except SyncpointError as error:
            raise StepFailed(failed(method, error, at), error.code) from error
        if step:
            self.history.took(step, self.now() - begun)
        return answer

    # -- resources ---------------------------------------------------------------------------------------------------

    async def standing_topic(self, topic: str, at: ProbedEndpoint | None = None) -> None:
        """Make sure that a standing topic exists."""
        try:
            await self.ask(methods.PUBLISHER.CreateTopic, pubsub.Topic(name=topic), at)
        except SyncpointError as error:
            if error.code is not Code.ALREADY_EXISTS:
                raise StepFailed(failed(methods.PUBLISHER.CreateTopic, error, at), error.code) from error

    def subscription(self, topic: str, which: str = "", **fields: Any) -> pubsub.Subscription:
        """A subscription for this run's messages alone, bounded in what it keeps and how long it lives."""
        return pubsub.Subscription(
            name=self.names.made("subscriptions", which),
            topic=topic,
            filter=f'attributes.run = "{self.names.run}"',
            ack_deadline_seconds=ACK_DEADLINE_S,
            message_retention_duration=well_known.Duration(seconds=RETENTION_S),
            expiration_policy=pubsub.ExpirationPolicy(ttl=well_known.Duration(seconds=UNUSED_S)),
            **fields,
        )

    async def subscribe(
        self, topic: str, which: str = "", *, step: str = "", at: ProbedEndpoint | None = None, **fields: Any
    ) -> str:
        """Create a subscription for this run, which deletes it in the end; its full name."""
        made = self.subscription(topic, which, **fields)
        self.delete_later(methods.SUBSCRIBER.DeleteSubscription, at, subscription=made.name)
        await self.call(methods.SUBSCRIBER.CreateSubscription, made, step=step, at=at)
        return str(made.name)

    def delete_later(self, method: Method, at: ProbedEndpoint | None = None, **fields: Any) -> None:
        """What the run's end has to call, last thing first."""
        self._made.append((method, method.request(**fields), at or self.endpoint))

    async def clean_up(self) -> None:
        """Delete what was made, and close the connections; ends within some seconds, and fails never."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DELETE_S):
                for method, request, place in reversed(self._made):
                    with contextlib.suppress(SyncpointError):
                        await self.ask(method, request, place)
        for channel in list(self._channels.values()):
            await channel.close()

    # -- publishing --------------------------------------------------------------------------------------------------

    async def publish(
        self, topic: str, numbers: Iterable[int], *, key: str = "", step: str = "", at: ProbedEndpoint | None = None
    ) -> None:
        """Publish messages of these numbers in one request. Raises `StepFailed`."""
        begun = self.now()
        sent = [SentMessage(number, payload(self.names.run, number), key, begun) for number in numbers]
        self.history.sent += sent
        messages = [
            pubsub.PubsubMessage(
                data=one.data, ordering_key=key, attributes={"run": self.names.run, "n": str(one.number)}
            )
            for one in sent
        ]
        request = pubsub.PublishRequest(topic=topic, messages=messages)
        answer = await self.call(methods.PUBLISHER.Publish, request, step=step, at=at)
        for index, one in enumerate(sent):
            one.answered, one.id = True, answer.message_ids[index] if index < len(answer.message_ids) else ""

    # -- receiving ---------------------------------------------------------------------------------------------------

    def note_arrival(self, message: Any, path: str = "", at: float | None = None) -> ArrivedMessage:
        """A delivered `PubsubMessage`."""
        number = message.attributes.get("n", "")
        came = ArrivedMessage(
            int(number) if number.isdecimal() else -1,
            message.attributes.get("run", ""),
            message.data,
            message.ordering_key,
            message.message_id,
            self.now() if at is None else at,
            path,
        )
        self.history.arrived.append(came)
        return came

    async def pull(
        self, subscription: str, wanted: Collection[int], *, times: int = 1, at: ProbedEndpoint | None = None
    ) -> dict[int, str]:
        """Pull until these messages have come the expected number of times, or the deadline has passed; ack ids by
        number.
        """
        end = self.now() + self.deadline_s
        ids: dict[int, str] = {}
        while self.history.missing(wanted, times=times) and self.now() < end:
            request = pubsub.PullRequest(subscription=subscription, max_messages=100)
            # The server answers before the call's deadline, with nothing if need be.
            for one in (await self.call(methods.SUBSCRIBER.Pull, request, at=at)).received_messages:
                ids[self.note_arrival(one.message).number] = one.ack_id
        return ids

    async def modify(self, subscription: str, ack_ids: Sequence[str], seconds: int) -> None:
        """Set the deadline of deliveries."""
        request = pubsub.ModifyAckDeadlineRequest(
            subscription=subscription, ack_ids=ack_ids, ack_deadline_seconds=seconds
        )
        await self.call(methods.SUBSCRIBER.ModifyAckDeadline, request)

    async def acknowledge(
        self, subscription: str, ids: dict[int, str], *, step: str = "", at: ProbedEndpoint | None = None
    ) -> None:
        """Acknowledge deliveries."""
        if ids:
            request = pubsub.AcknowledgeRequest(subscription=subscription, ack_ids=list(ids.values()))
            await self.call(methods.SUBSCRIBER.Acknowledge, request, step=step, at=at)

    @contextlib.asynccontextmanager
    async def streaming(
        self, subscription: str, *, path: str = "", at: ProbedEndpoint | None = None
    ) -> AsyncIterator[PulledStream]:
        """Receive by StreamingPull within it, and acknowledge."""
        stream = PulledStream(self, subscription, path, at or self.endpoint)
        task = asyncio.create_task(stream.keep())
        try:
            yield stream
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def wait_for(self, done: Callable[[], bool], *streams: PulledStream, within_s: float | None = None) -> None:
        """Wait until it is so, at most for the deadline; raises `StepFailed` for a stream that cannot be had."""
        end = self.now() + (within_s or self.deadline_s)
        while not done() and self.now() < end:
            if any(one.refused for one in streams):
                break
            await asyncio.sleep(0.01)
        broken = next((one.problem for one in streams if one.problem), "")
        if broken and not done():
            raise StepFailed(broken)

    async def arrived(self, *streams: PulledStream) -> None:
        """Wait until all that was sent has arrived, on every path."""
        await self.wait_for(lambda: not self.history.missing(), *streams)

    def note_delays(self, step: str) -> None:
        """Note how long each message that came took, on the slowest path."""
        for one in self.history.arrived:
            sent_at = self.history.sent_at(one.number)
            if sent_at is not None:
                self.history.took(step, one.at - sent_at)


class PulledStream:
    """A StreamingPull that acknowledges what it receives. `problem`: why there is none just now; `refused`: it will not
    be had by trying again.
    """

    def __init__(self, run: ProbeRun, subscription: str, path: str, endpoint: ProbedEndpoint) -> None:
        self._run, self._subscription, self._path, self._endpoint = run, subscription, path, endpoint
        self.problem, self.refused = "", False

    async def keep(self) -> None:
        """Receive until cancelled."""
        while not self.refused:
            try:
                await self._receive()
            except SyncpointError as error:
                self.problem = failed(methods.SUBSCRIBER.StreamingPull, error, self._endpoint)
                self.refused = error.code is not Code.UNAVAILABLE
            await asyncio.sleep(REOPEN_S)

    async def _receive(self) -> None:
        target = self._endpoint.target
        stream = self._run.channel(self._endpoint).stream(methods.SUBSCRIBER.StreamingPull, target.metadata())
        try:
            first = pubsub.StreamingPullRequest(
                subscription=self._subscription, stream_ack_deadline_seconds=ACK_DEADLINE_S
            )
            await stream.send(first.SerializeToString())
            while (answer := await stream.receive()) is not None:
                self.problem = ""
                came = pubsub.StreamingPullResponse.FromString(answer).received_messages
                for one in came:
                    self._run.note_arrival(one.message, self._path)
                if came:
                    acks = pubsub.StreamingPullRequest(ack_ids=[one.ack_id for one in came])
                    await stream.send(acks.SerializeToString())
        finally:
            stream.cancel()


def payload(run: str, number: int) -> bytes:
    """The data of a message: unique."""
    return (f"{run} {number} ".encode() * PAYLOAD_BYTES)[:PAYLOAD_BYTES]


def failed(method: Method, error: SyncpointError, at: ProbedEndpoint | None = None) -> str:
    """A failed call, in words."""
    where = f" at {at.address}" if at is not None else ""
    return f"{method.descriptor.name}{where}: {error}"


ProbeScript = Callable[[ProbeRun], Awaitable[None]]
"""The steps of a prober."""
