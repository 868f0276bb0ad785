"""The scripts of P8 to P10: administration, failover between endpoints, and every path through the service.

Place: run by `prober_driver` over `probe_run`; judged by `judgement`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, Final

from syncpoint.base.model.errors import Code, SyncpointError
from syncpoint.programs.probers.message_scripts import (
    acknowledgement,
    first_message,
    order,
    publish,
    push,
    redelivery,
    steady_stream,
)
from syncpoint.programs.probers.probe_history import ReadBack
from syncpoint.programs.probers.probe_names import ProbeNames
from syncpoint.programs.probers.probe_run import ProbedEndpoint, ProbeRun, ProbeScript, StepFailed, failed
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import admin, pubsub, well_known
from syncpoint.wire.protobuf.methods import Method

CHANGED_DEADLINE_S: Final = 25
BEFORE, HELD, AFTER = range(4), range(2, 4), range(4, 8)  # HELD: pulled, and not acknowledged
AGREE_S: Final = 2.0  # time within which two endpoints see the same members
PATH_TOPICS: Final = 4
COPIED_TOPIC: Final = "probe-p10-copied"
COPIES: Final = 3
MOVES_ON: Final = (Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED)  # a client tries its next endpoint


async def administration(run: ProbeRun) -> None:
    """P8: what was made is there as it was made, what was changed is changed, what was deleted is gone."""
    topic, subscription = run.names.made("topics"), run.names.made("subscriptions")
    run.delete_later(methods.PUBLISHER.DeleteTopic, topic=topic)
    run.delete_later(methods.SUBSCRIBER.DeleteSubscription, subscription=subscription)
    seen = run.history.read

    async def call(method: Method, request: Any) -> Any:
        return await run.call(method, request, step="call")

    await call(methods.PUBLISHER.CreateTopic, pubsub.Topic(name=topic, labels={"state": "new"}))
    found = await call(methods.PUBLISHER.GetTopic, pubsub.GetTopicRequest(topic=topic))
    seen.append(ReadBack("labels of the new topic", {"state": "new"}, dict(found.labels)))
    changed = pubsub.UpdateTopicRequest(
        topic=pubsub.Topic(name=topic, labels={"state": "changed"}), update_mask=well_known.FieldMask(paths=["labels"])
    )
    await call(methods.PUBLISHER.UpdateTopic, changed)
    await call(methods.SUBSCRIBER.CreateSubscription, run.subscription(topic))
    resized = pubsub.UpdateSubscriptionRequest(
        subscription=pubsub.Subscription(name=subscription, ack_deadline_seconds=CHANGED_DEADLINE_S),
        update_mask=well_known.FieldMask(paths=["ack_deadline_seconds"]),
    )
    await call(methods.SUBSCRIBER.UpdateSubscription, resized)
    found = await call(methods.PUBLISHER.GetTopic, pubsub.GetTopicRequest(topic=topic))
    seen.append(ReadBack("labels of the changed topic", {"state": "changed"}, dict(found.labels)))
    get = pubsub.GetSubscriptionRequest(subscription=subscription)
    found = await call(methods.SUBSCRIBER.GetSubscription, get)
    seen.append(ReadBack("deadline of the subscription", CHANGED_DEADLINE_S, found.ack_deadline_seconds))
    seen.append(ReadBack("topic of the subscription", topic, found.topic))
    listed = await call(methods.PUBLISHER.ListTopicSubscriptions, pubsub.ListTopicSubscriptionsRequest(topic=topic))
    if subscription not in listed.subscriptions:
        run.history.unlisted.append(subscription)
    await call(methods.SUBSCRIBER.DeleteSubscription, pubsub.DeleteSubscriptionRequest(subscription=subscription))
    await call(methods.PUBLISHER.DeleteTopic, pubsub.DeleteTopicRequest(topic=topic))
    for method, request in (
        (methods.SUBSCRIBER.GetSubscription, get),
        (methods.PUBLISHER.GetTopic, pubsub.GetTopicRequest(topic=topic)),
    ):
        try:
            await run.ask(method, request)
        except SyncpointError as error:
            if error.code is not Code.NOT_FOUND:
                raise StepFailed(failed(method, error), error.code) from error
        else:
            run.history.undeleted.append(method.descriptor.name)


async def failover(run: ProbeRun) -> None:
    """P9: a client that has a list of endpoints, and loses the one it is at.

    What it has pulled there and not acknowledged has to come again by the next endpoint, and so have messages that are
    published there. Endpoints that do not answer are passed over, the first one as well.
    """
    client = _MovingClient(run)
    await _list_forwarders(run, client)
    topic = run.names.standing(run.spec.topic)
    await client.on(lambda at: run.standing_topic(topic, at))
    made = run.subscription(topic)
    await client.call(methods.SUBSCRIBER.CreateSubscription, made, tolerated=Code.ALREADY_EXISTS)
    run.delete_later(methods.SUBSCRIBER.DeleteSubscription, client.at, subscription=made.name)
    await client.on(lambda at: run.publish(topic, BEFORE, at=at))
    ids = await client.on(lambda at: run.pull(made.name, BEFORE, at=at))
    if set(BEFORE) - ids.keys():
        return  # they are lost
    await run.acknowledge(
        made.name, {number: ids[number] for number in list(BEFORE)[:2] if number in ids}, at=client.at
    )
    held = [ids[number] for number in list(BEFORE)[2:] if number in ids]
    run.history.again.update(dict.fromkeys(list(BEFORE)[2:], 2))
    left_at = run.now()
    await run.leave(client.at)
    client.move_on()
    nack = pubsub.ModifyAckDeadlineRequest(subscription=made.name, ack_ids=held)
    await client.call(methods.SUBSCRIBER.ModifyAckDeadline, nack)
    await client.on(lambda at: run.publish(topic, AFTER, at=at))
    known = len(run.history.arrived)
    ids = await client.on(lambda at: run.pull(made.name, AFTER, at=at))
    if len(run.history.arrived) > known:
        run.history.took("failover", run.history.arrived[known].at - left_at)
    ids |= await client.on(lambda at: run.pull(made.name, HELD, times=2, at=at))
    await client.on(lambda at: run.acknowledge(made.name, ids, at=at))


class _MovingClient:
    """Calls at one endpoint after the other, until one answers."""

    def __init__(self, run: ProbeRun) -> None:
        self._run = run
        self._places = (run.endpoint, *run.others)
        self._index = 0

    @property
    def at(self) -> ProbedEndpoint:
        return self._places[self._index]

    def move_on(self) -> None:
        """The next endpoint; with one alone, the same one by another connection."""
        self._index = (self._index + 1) % len(self._places)

    async def on(self, act: Callable[[ProbedEndpoint], Awaitable[Any]]) -> Any:
        """Do something where it is answered. Raises `StepFailed` when that is nowhere."""
        for attempt in range(len(self._places)):
            try:
                return await act(self.at)
            except StepFailed as error:
                last = attempt == len(self._places) - 1
                if last or error.code not in MOVES_ON:
                    raise
                self.move_on()
        raise AssertionError("unreachable")

    async def call(self, method: Method, request: Any, *, tolerated: Code | None = None, step: str = "") -> Any:
        """One call where it is answered; None for a refusal that is tolerated."""

        async def act(at: ProbedEndpoint) -> Any:
            try:
                return await self._run.call(method, request, step=step, at=at)
            except StepFailed as error:
                if tolerated is not None and error.code is tolerated:
                    return None
                raise

        return await self.on(act)


async def _list_forwarders(run: ProbeRun, client: _MovingClient) -> None:
    """Ask the endpoints who takes and delivers messages, until they agree or time is up; one node has no list."""
    end = run.now() + AGREE_S
    while True:
        try:
            found = [await client.on(lambda at: _forwarders(run, at))]
        except StepFailed as error:
            if error.code is Code.UNIMPLEMENTED:
                return
            raise
        for other in run.others:
            with contextlib.suppress(StepFailed):  # one that does not answer has no opinion
                found.append(await _forwarders(run, other))
        run.history.forwarders = found
        if (all(found) and len(set(found)) == 1) or run.now() >= end:
            return
        await asyncio.sleep(0.2)


async def _forwarders(run: ProbeRun, at: ProbedEndpoint) -> frozenset[str]:
    answer = await run.call(methods.ADMIN.ListMembers, admin.ListMembersRequest(), step="list", at=at)
    roles = ("publish-forwarder", "subscribe-forwarder")
    found = {f"{one.name} {role}" for one in answer.members for role in one.roles if role in roles}
    return frozenset(found if all(any(one.endswith(role) for one in found) for role in roles) else ())


async def every_path(run: ProbeRun) -> None:
    """P10: from here to every endpoint, over topics that lie in different chains; or to the other cluster."""
    if run.around.copy is not None:
        await _copied(run, run.around.copy)
        return
    places = (run.endpoint, *run.others)
    topics = [run.names.standing(f"{run.spec.topic}-{number + 1}") for number in range(PATH_TOPICS)]
    run.history.paths = [place.address for place in places]
    async with contextlib.AsyncExitStack() as stack:
        streams = []
        for index, topic in enumerate(topics):
            await run.standing_topic(topic)
            for number, place in enumerate(places):
                name = await run.subscribe(topic, f"{index}-{number}")
                streams.append(await stack.enter_async_context(run.streaming(name, path=place.address, at=place)))
        for index, topic in enumerate(topics):
            await run.publish(topic, [index])
        await run.arrived(*streams)
    run.note_delays("path")


async def _copied(run: ProbeRun, there: ProbedEndpoint) -> None:
    """To a federated cluster, whose own topic of this name gets the copies."""
    names = ProbeNames(run.around.copy_project, run.spec.name, run.names.run, 0)
    here_topic, there_topic = run.names.standing(COPIED_TOPIC), names.standing(COPIED_TOPIC)
    await run.standing_topic(here_topic)
    await run.standing_topic(there_topic, there)
    made = run.subscription(there_topic)
    made.name = made.name.replace(run.names.project, names.project, 1)
    run.delete_later(methods.SUBSCRIBER.DeleteSubscription, there, subscription=made.name)
    await run.call(methods.SUBSCRIBER.CreateSubscription, made, at=there)
    run.history.copies = True
    limit_s = next(step.limit_s for step in run.spec.timed if step.name == "copy")
    async with run.streaming(made.name, at=there) as stream:
        for number in range(COPIES):
            await run.publish(here_topic, [number])
        await run.wait_for(
            lambda: not run.history.missing(), stream, within_s=limit_s * run.around.patience + run.deadline_s
        )
    run.note_delays("copy")


SCRIPTS: Final[dict[str, ProbeScript]] = {
    "P1": first_message,
    "P2": publish,
    "P3": steady_stream,
    "P4": acknowledgement,
    "P5": redelivery,
    "P6": order,
    "P7": push,
    "P8": administration,
    "P9": failover,
    "P10": every_path,
}
