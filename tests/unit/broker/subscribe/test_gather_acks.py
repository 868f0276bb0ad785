"""Acknowledgements that count once, while links break, processes die, grants move, and subscriptions are set back."""

import asyncio

import pytest

from syncpoint.base.model.times import GRANT_S
from tests.kit.loops import in_simulated_time
from tests.kit.subscribers import Client, SubscribeHarness

pytestmark = pytest.mark.shows("grants")


@in_simulated_time
async def test_an_exactly_once_ack_under_a_lost_grant_fails_and_the_message_is_acked_once() -> None:
    harness, first, ack_id = await SubscribeHarness.leasing(exactly_once=True)
    second = Client(harness, harness.forwarder("b"))
    await asyncio.sleep(1)
    assert not second.data, "the grant stays where it is"
    harness.cut("a", "p0")
    await asyncio.sleep(8)
    assert second.data == ["m"], "the old grant is over"
    first.ack(ack_id)
    assert list(first.held) == [ack_id], "refused at once: nobody is to be reached"
    harness.heal()
    await asyncio.sleep(1)
    first.ack(ack_id)
    second.ack()
    await asyncio.sleep(8)
    assert harness.confirmed == ["m"]
    assert first.refused == ["m"]
    assert harness.all_done


@pytest.mark.parametrize("counted", [True, False])
@in_simulated_time
async def test_an_exactly_once_ack_whose_lender_is_gone_fails_only_if_it_did_not_count(*, counted: bool) -> None:
    harness, first, ack_id = await SubscribeHarness.leasing(deadline_s=60, exactly_once=True)
    if counted:
        harness.lost_answers.add(("p0", "acknowledged"))
        first.ack(ack_id)
        await asyncio.sleep(1)
        harness.lost_answers.clear()
    second = Client(harness, harness.forwarder("b"), deadline_s=60)
    await asyncio.sleep(1)
    await second.ack_again(ack_id)
    await asyncio.sleep(5)
    assert (second.refused, second.unknown, second.data) == ([], ["m"], []), "the lender may still say"
    harness.cut("a")  # for good
    await asyncio.sleep(8)
    await second.ack_again(ack_id)
    await asyncio.sleep(5)
    if counted:
        assert (second.refused, second.unknown, second.data) == ([], ["m", "m"], [])
    else:
        assert (second.refused, second.unknown, second.data) == (["m"], ["m"], ["m"]), "it is delivered again"
    assert harness.left == (0 if counted else 1)


@in_simulated_time
async def test_an_exactly_once_lease_outlives_a_short_break() -> None:
    harness, client, _ = await SubscribeHarness.leasing(exactly_once=True)
    harness.break_streams()
    await asyncio.sleep(2)
    client.ack()
    await asyncio.sleep(1)
    assert harness.confirmed == ["m"]
    assert client.data == ["m"]


@in_simulated_time
async def test_an_exactly_once_ack_nobody_answers_is_unknown_and_can_be_tried_again() -> None:
    harness, client, ack_id = await SubscribeHarness.leasing(exactly_once=True)
    client.ack(ack_id)
    await harness.kill("p0")  # before it arrived
    await asyncio.sleep(7)
    assert client.unknown == ["m"]
    await harness.adopt("p1")
    await asyncio.sleep(2)
    await client.ack_again(ack_id)
    assert harness.confirmed == ["m"]
    assert harness.all_done


def end(client: Client, how: str) -> None:
    """What is lent of the subscription does not count any more: it was set to another place, or is gone."""
    if how == "reset":
        client.forwarder.subscribe.delivery(client.harness.record).on_reset()
    else:
        client.forwarder.subscribe.removed(client.harness.record.incarnation)


async def ack_without_answer(harness: SubscribeHarness, client: Client, *, counted: bool) -> None:
    """The client acknowledges what it holds, and the owner dies: with that on its disks, or not."""
    harness.lost_answers.add(("p0", "acknowledged"))
    harness.processes["p0"].paused = not counted
    client.ack()
    await asyncio.sleep(0.05)
    await harness.kill("p0")


async def grant_anew(harness: SubscribeHarness, client: Client, *, ack: bool) -> None:
    """A new owner of all chains without one does not hear from the client's forwarder, until it has granted them to
    another one, which goes at once. `ack`: the client acknowledges shortly before that.
    """
    harness.cut("a", "p2")
    await harness.adopt("p2")
    other = Client(harness, harness.forwarder("b"), most=0)
    await asyncio.sleep(GRANT_S - 0.5)
    if ack:
        client.ack()
    await asyncio.sleep(1)
    harness.heal()
    await asyncio.sleep(1)
    other.leave()


@in_simulated_time
async def test_an_ack_that_counted_is_not_reported_as_failed_when_its_source_has_gone_to_somebody_else() -> None:
    harness, client, ack_id = await SubscribeHarness.leasing(deadline_s=60, exactly_once=True)
    await ack_without_answer(harness, client, counted=True)
    other = Client(harness, harness.forwarder("b"))
    harness.cut("a", "p1")
    await harness.adopt("p1")
    await asyncio.sleep(12)
    assert (client.unknown, client.refused, other.data) == (["m"], [], [])
    harness.heal()
    await asyncio.sleep(2)
    await client.ack_again(ack_id)
    assert (client.refused, harness.confirmed, harness.all_done) == ([], ["m"], True)


@in_simulated_time
async def test_an_ack_under_way_when_its_source_is_granted_anew_is_not_reported_as_failed_by_our_own_word() -> None:
    harness, client, ack_id = await SubscribeHarness.leasing(deadline_s=60, exactly_once=True)
    await ack_without_answer(harness, client, counted=False)
    await grant_anew(harness, client, ack=False)
    await asyncio.sleep(5)
    assert client.data == ["m", "m"]
    await client.ack_again(ack_id)
    assert client.refused, "the publish side has said that it was not recorded"
    client.ack()
    await asyncio.sleep(1)
    assert harness.confirmed == ["m"]
    assert harness.all_done


@pytest.mark.parametrize("then", ["nothing", "reset", "removed"])
@in_simulated_time
async def test_whoever_waits_for_an_ack_learns_of_it_while_the_publish_side_is_asked_what_became_of_it(
    *,
    then: str,
) -> None:
    harness = await SubscribeHarness.start(processes=2, chains=2, exactly_once=True)
    client = Client(harness, harness.forwarder("a"), deadline_s=60)
    await harness.publish("m", chain=2)
    await asyncio.sleep(1)
    await harness.kill("p0")
    harness.lost_answers.add(("p2", "fetched"))
    await grant_anew(harness, client, ack=True)
    await asyncio.sleep(1)
    assert harness.fetches["p2"], "the new owner is being asked"
    assert (client.data, client.unknown, client.refused, harness.confirmed) == (["m"], [], [], [])
    if then == "nothing":
        await asyncio.sleep(4)
        assert client.unknown == ["m"]
    else:
        end(client, then)
    assert (client.unknown, client.refused, harness.confirmed) == (["m"], [], []), "it was never recorded"


@pytest.mark.parametrize("how", ["reset", "removed"])
@pytest.mark.parametrize("answered", [True, False])
@in_simulated_time
async def test_an_exactly_once_ack_is_not_confirmed_for_a_seek_or_deletion_others_may_not_know_yet(
    *, how: str, answered: bool
) -> None:
    harness, first, ack_id = await SubscribeHarness.leasing(deadline_s=60, exactly_once=True)
    second = Client(harness, harness.forwarder("b"))  # that has not learned of it
    await asyncio.sleep(1)
    first.ack(ack_id)
    harness.cut("a", "p0")  # it does not arrive
    if answered:
        harness.break_streams("a")  # its outcome is unknown before the end; otherwise it is under way then
    await asyncio.sleep(0.5)
    assert (first.unknown, first.refused, harness.confirmed) == ([], [], [])
    end(first, how)
    await asyncio.sleep(12)
    assert second.data == ["m"], "nothing was recorded"
    assert (first.unknown, first.refused, harness.confirmed) == (["m"], [], [])
    if how == "reset":
        harness.heal()
        await asyncio.sleep(1)
        await first.ack_again(ack_id)
        assert (first.unknown, first.refused) == (["m", "m"], []), "whoever tries again learns the same"


@pytest.mark.parametrize("counted", [True, False])
@in_simulated_time
async def test_what_became_of_an_ack_reported_as_unknown_before_a_seek_is_reported_after_it(*, counted: bool) -> None:
    harness, client, ack_id = await SubscribeHarness.leasing(deadline_s=60, exactly_once=True)
    forwarder = client.forwarder
    harness.lost_answers.add(("p0", "acknowledged"))
    client.ack(ack_id)
    await asyncio.sleep(20)
    assert client.unknown == ["m"]
    if counted:
        harness.lost_answers.clear()
        await asyncio.sleep(16)
    forwarder.subscribe.delivery(harness.record).on_reset()
    await client.ack_again(ack_id)
    assert client.refused == [], "it may have counted"
    assert (client.unknown, harness.confirmed) == ((["m"], ["m"]) if counted else (["m", "m"], []))


@in_simulated_time
async def test_an_exactly_once_ack_of_another_generation_than_is_served_is_refused() -> None:
    harness, client, _ = await SubscribeHarness.leasing(deadline_s=60, exactly_once=True)
    forwarder = client.forwarder
    (served,) = forwarder.gatherer._served.views.values()
    served.generation += 1  # it has learned of a seek
    client.ack()
    await asyncio.sleep(1)
    assert (harness.confirmed, client.unknown, client.refused) == ([], [], ["m"])


@in_simulated_time
async def test_an_ack_that_need_not_count_once_is_answered_when_its_subscription_is_gone() -> None:
    harness, client, _ = await SubscribeHarness.leasing()
    forwarder = client.forwarder
    client.ack()
    await harness.kill("p0")  # before it arrived
    await asyncio.sleep(0.5)
    assert harness.confirmed == []
    forwarder.subscribe.removed(harness.record.incarnation)
    await asyncio.sleep(1)
    assert (harness.confirmed, client.unknown) == (["m"], [])


@in_simulated_time
async def test_an_ack_is_not_confirmed_while_its_subscription_is_not_attached_to() -> None:
    harness, client, ack_id = await SubscribeHarness.leasing(deadline_s=60)
    delivery = client.forwarder.subscribe.delivery(harness.record)
    delivery.publish.detach(harness.record.incarnation)  # to begin anew, which failed in its middle
    client.ack(ack_id)
    await asyncio.sleep(0.3)
    assert harness.confirmed == []
    delivery.begin_anew()
    await asyncio.sleep(1)
    assert (harness.confirmed, harness.all_done) == (["m"], True)


@pytest.mark.parametrize("answered", [True, False])
@in_simulated_time
async def test_an_ack_that_is_not_recorded_is_not_confirmed_when_everything_is_begun_anew(*, answered: bool) -> None:
    harness, client, ack_id = await SubscribeHarness.leasing(deadline_s=60)
    if answered:
        await ack_without_answer(harness, client, counted=False)
        await asyncio.sleep(0.3)
        client.forwarder.subscribe.delivery(harness.record).begin_anew()
    else:
        harness.processes["p0"].paused = True
        client.ack(ack_id)
        await asyncio.sleep(0.02)
        client.forwarder.subscribe.delivery(harness.record).begin_anew()  # it is under way
        await harness.kill("p0")
    await asyncio.sleep(0.3)
    assert harness.confirmed == []
    await harness.adopt("p1")
    await asyncio.sleep(3)
    assert (harness.confirmed, harness.all_done) == (["m"], True)
