"""The scripts of P1 to P7: messages are published and received, and everything is noted.

Place: run by `prober_driver` over `probe_run`; judged by `judgement`.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Final

from syncpoint.programs.probers.probe_run import ProbeRun, StepFailed
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import pubsub

PUBLISHES: Final = 10
STEADY_MESSAGES, STEADY_SPACING_S = 20, 0.05
PULLED: Final = range(5)
PULLED_LEASE_S, WATCHED_S = 1, 2.5
NACKED, EXPIRED, EXPIRED_LEASE_S = 0, 1, 2
KEYS: Final = ("a", "b", "c")
A_KEY: Final = 5
PUSHES: Final = 3


async def first_message(run: ProbeRun) -> None:
    """P1: create a subscription, publish one message, and receive it; both are timed."""
    topic = run.names.standing(run.spec.topic)
    await run.standing_topic(topic)
    subscription = await run.subscribe(topic, step="create")
    async with run.streaming(subscription) as stream:
        await run.publish(topic, [0])
        await run.arrived(stream)
    run.note_delays("receive")


async def publish(run: ProbeRun) -> None:
    """P2: publishes alone. Nobody subscribes, so nothing of it is kept."""
    topic = run.names.standing(run.spec.topic)
    await run.standing_topic(topic)
    for number in range(PUBLISHES):
        await run.publish(topic, [number], step="publish")
    await run.publish(topic, range(PUBLISHES, 2 * PUBLISHES), step="publish")


async def steady_stream(run: ProbeRun) -> None:
    """P3: a message every now and then, received by one stream."""
    topic = run.names.standing(run.spec.topic)
    await run.standing_topic(topic)
    subscription = await run.subscribe(topic)
    async with run.streaming(subscription) as stream:
        for number in range(STEADY_MESSAGES):
            await run.publish(topic, [number], step="publish")
            await asyncio.sleep(STEADY_SPACING_S)
        await run.arrived(stream)
    run.note_delays("receive")


async def acknowledgement(run: ProbeRun) -> None:
    """P4: what is acknowledged does not come again, although its deadline ends.

    The deadline is made so short that it can be waited for; it ends a while after the acknowledgement, unless the
    service has forgotten that.
    """
    topic = run.names.standing(run.spec.topic)
    await run.standing_topic(topic)
    subscription = await run.subscribe(topic)
    begun = run.now()
    await run.publish(topic, PULLED)
    ids = await run.pull(subscription, PULLED)
    if run.history.missing():
        return  # they are lost
    run.history.took("pull", run.now() - begun)
    await run.modify(subscription, list(ids.values()), PULLED_LEASE_S)
    await run.acknowledge(subscription, ids, step="acknowledge")
    answered = run.now()
    run.history.acknowledged_at.update(dict.fromkeys(ids, answered))
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(PULLED_LEASE_S + WATCHED_S):
            await _watch(run, subscription)


async def _watch(run: ProbeRun, subscription: str) -> None:
    """Note what comes, if anything does."""
    while True:
        request = pubsub.PullRequest(subscription=subscription, max_messages=100)
        for one in (await run.call(methods.SUBSCRIBER.Pull, request)).received_messages:
            run.note_arrival(one.message)


async def redelivery(run: ProbeRun) -> None:
    """P5: one message is nacked, the deadline of another one ends; both come again, the second not too early."""
    topic = run.names.standing(run.spec.topic)
    await run.standing_topic(topic)
    subscription = await run.subscribe(topic)
    history = run.history
    await run.publish(topic, [NACKED, EXPIRED])
    ids = await run.pull(subscription, [NACKED, EXPIRED])
    if {NACKED, EXPIRED} - ids.keys():
        return  # they are lost
    history.again.update({NACKED: 2, EXPIRED: 2})
    asked = run.now()
    await run.modify(subscription, [ids[EXPIRED]], EXPIRED_LEASE_S)
    history.not_before[EXPIRED] = asked + EXPIRED_LEASE_S
    await run.modify(subscription, [ids[NACKED]], 0)
    nacked = run.now()
    again = await run.pull(subscription, [NACKED, EXPIRED], times=2)
    for number, step, since in ((NACKED, "nacked", nacked), (EXPIRED, "expired", asked + EXPIRED_LEASE_S)):
        second = [one.at for one in history.arrived if one.number == number][1:2]
        if second:
            history.took(step, max(0.0, second[0] - since))
    await run.acknowledge(subscription, again)


async def order(run: ProbeRun) -> None:
    """P6: keys side by side, the messages of each in sequence."""
    topic = run.names.standing(run.spec.topic)
    await run.standing_topic(topic)
    subscription = await run.subscribe(topic, enable_message_ordering=True)

    async def of_key(index: int) -> None:
        for number in range(A_KEY):
            await run.publish(topic, [index * A_KEY + number], key=KEYS[index])

    async with run.streaming(subscription) as stream:
        results = await asyncio.gather(*map(of_key, range(len(KEYS))), return_exceptions=True)
        for one in results:
            if isinstance(one, BaseException):
                raise one
        await run.arrived(stream)
    run.note_delays("receive")


async def push(run: ProbeRun) -> None:
    """P7: the service calls this program."""
    receiver, loop = run.around.push, asyncio.get_running_loop()
    if receiver is None:
        raise StepFailed("no port for pushes is open: set --push-listen, or skip P7 with --without P7")
    topic = run.names.standing(run.spec.topic)
    await run.standing_topic(topic)
    name = run.names.made("subscriptions")

    def on_push(message: Any, subscription: str) -> None:
        at = loop.time()
        if subscription != name:
            message.attributes["run"] = f"of {subscription}"
        loop.call_soon_threadsafe(run.note_arrival, message, "", at)

    with receiver.of_run(run.names.run, on_push) as url:
        await run.subscribe(topic, push_config=pubsub.PushConfig(push_endpoint=url))
        for number in range(PUSHES):
            await run.publish(topic, [number])
        await run.arrived()
    run.note_delays("push")
