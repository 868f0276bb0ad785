"""One subscription from many chains: fairness, losing and taking over grants, order over several chains."""

import asyncio
from itertools import pairwise

import pytest

from syncpoint.model.times import GRANT_S, HOLD_S
from tests.kit.chain import SUB_NUMBER, TOPIC_NUMBER
from tests.kit.clock import in_simulated_time
from tests.kit.subscribers import Client, SubscribeWorld


@in_simulated_time
async def test_one_subscriber_is_served_from_sixteen_sources() -> None:
    world = await SubscribeWorld.start(processes=4, chains=16)
    client = Client(world, world.forwarder("a"))
    for number in range(200):
        await world.publish(str(number))
    await asyncio.sleep(1)
    assert sorted(client.data, key=int) == [str(number) for number in range(200)]


@in_simulated_time
async def test_pulls_of_one_message_take_turns_over_sixteen_sources() -> None:
    world = await SubscribeWorld.start(processes=2, chains=16)
    forwarder = world.forwarder("a")
    await asyncio.sleep(0.5)
    for chain in world.owners():
        for number in range(3):
            await world.publish(f"{chain}:{number}", chain=chain)
    seen = []
    for _ in range(16):
        client = Client(world, forwarder, most=1, single=True)
        await asyncio.sleep(0.3)
        seen += client.data
        client.ack()
    assert len({one.partition(":")[0] for one in seen}) == 16, seen


@in_simulated_time
async def test_sources_go_where_somebody_listens() -> None:
    world = await SubscribeWorld.start(processes=2, chains=4)
    first = Client(world, world.forwarder("a"))
    second = world.forwarder("b")
    await asyncio.sleep(1)
    await world.publish("one")
    await asyncio.sleep(1)
    assert first.data == ["one"]
    first.ack()
    first.leave()
    client = Client(world, second)
    await asyncio.sleep(15)
    for number in range(10):
        await world.publish(str(number))
    await asyncio.sleep(3)
    assert sorted(client.data) == [str(number) for number in range(10)]


@in_simulated_time
async def test_a_new_owner_of_a_chain_is_found_and_nothing_is_lost() -> None:
    world = await SubscribeWorld.start(processes=3, chains=6)
    client = Client(world, world.forwarder("a"))
    for number in range(30):
        await world.publish(str(number))
    await asyncio.sleep(1)
    await world.kill("p1")
    client.ack()  # some of these cannot be recorded now
    await asyncio.sleep(3)
    await world.adopt("p2")
    for number in range(30, 60):
        await world.publish(str(number))
    await asyncio.sleep(3)
    client.ack()
    await asyncio.sleep(3)
    assert set(client.data) == {str(number) for number in range(60)}
    assert world.all_done
    assert not client.refused


@in_simulated_time
async def test_an_exactly_once_ack_under_a_lost_grant_fails_and_the_message_is_acked_once() -> None:
    world = await SubscribeWorld.start(processes=1, chains=1, exactly_once=True)
    first = Client(world, world.forwarder("a"))
    await world.publish("m")
    await asyncio.sleep(1)
    (ack_id,) = first.held
    second = Client(world, world.forwarder("b"))
    await asyncio.sleep(1)
    assert not second.data, "the grant stays where it is"
    world.cut("a", "p0")
    await asyncio.sleep(8)
    assert second.data == ["m"], "the old grant is over"
    first.ack(ack_id)
    assert list(first.held) == [ack_id], "refused at once: nobody is to be reached"
    world.heal()
    await asyncio.sleep(1)
    first.ack(ack_id)
    second.ack()
    await asyncio.sleep(8)
    assert world.confirmed == ["m"]
    assert first.refused == ["m"]
    assert world.all_done


@in_simulated_time
async def test_sources_follow_a_client_that_moved_as_soon_as_nothing_is_lent_where_it_was() -> None:
    world = await SubscribeWorld.start(processes=1, chains=1, exactly_once=True)
    first = Client(world, world.forwarder("a"), deadline_s=60)
    await world.publish("m")
    await asyncio.sleep(1)
    second = Client(world, world.forwarder("b"))
    first.leave()
    await world.publish("n")
    await asyncio.sleep(3)
    assert not second.data, "what is lent may still be acknowledged"
    first.ack()
    await asyncio.sleep(1)
    assert world.confirmed == ["m"]
    assert second.data == ["n"]


@in_simulated_time
async def test_a_message_lent_to_a_client_that_is_gone_does_not_keep_the_others_from_who_wants_them() -> None:
    for options in ({"exactly_once": True}, {"ordered": True}):
        world = await SubscribeWorld.start(processes=1, chains=1, **options)
        first = Client(world, world.forwarder("a"), deadline_s=600)
        await world.publish("m")
        await asyncio.sleep(1)
        second = Client(world, world.forwarder("b"))
        first.leave()
        await world.publish("n")
        await asyncio.sleep(20)
        assert second.data == ["m", "n"]
        second.ack()
        await asyncio.sleep(1)
        assert world.all_done


@in_simulated_time
async def test_an_exactly_once_lease_outlives_a_short_break() -> None:
    world = await SubscribeWorld.start(processes=1, chains=1, exactly_once=True)
    client = Client(world, world.forwarder("a"))
    await world.publish("m")
    await asyncio.sleep(1)
    world.break_streams()
    await asyncio.sleep(2)
    client.ack()
    await asyncio.sleep(1)
    assert world.confirmed == ["m"]
    assert client.data == ["m"]


@in_simulated_time
async def test_an_exactly_once_ack_nobody_answers_is_unknown_and_can_be_tried_again() -> None:
    world = await SubscribeWorld.start(processes=1, chains=1, exactly_once=True)
    client = Client(world, world.forwarder("a"))
    await world.publish("m")
    await asyncio.sleep(1)
    (ack_id,) = client.held
    client.ack(ack_id)
    await world.kill("p0")  # before it arrived
    await asyncio.sleep(7)
    assert client.unknown == ["m"]
    await world.adopt("p1")
    await asyncio.sleep(2)
    client.held[ack_id] = "m"
    client.ack(ack_id)
    await asyncio.sleep(1)
    assert world.confirmed == ["m"]
    assert world.all_done


async def ack_without_answer(world: SubscribeWorld, client: Client, *, counted: bool) -> None:
    """The client acknowledges what it holds, and the owner dies: with that on its disks, or not."""
    world.lost_answers.add(("p0", "acknowledged"))
    world.processes["p0"].paused = not counted
    client.ack()
    await asyncio.sleep(0.05)
    await world.kill("p0")


async def lent_under_a_grant_that_dies_with_its_giver(world: SubscribeWorld) -> Client:
    """The grant is not on disks yet, so that a new owner can only grant anew."""
    await world.publish("m")
    await asyncio.sleep(0.5)
    world.processes["p0"].paused = True
    client = Client(world, world.forwarder("a"), deadline_s=60)
    await asyncio.sleep(1)
    assert client.data == ["m"]
    return client


@in_simulated_time
async def test_an_ack_that_counted_is_not_told_as_failed_when_its_source_has_gone_to_somebody_else() -> None:
    world = await SubscribeWorld.start(exactly_once=True)
    client = Client(world, world.forwarder("a"), deadline_s=60)
    await world.publish("m")
    await asyncio.sleep(1)
    (ack_id,) = client.held
    await ack_without_answer(world, client, counted=True)
    other = Client(world, world.forwarder("b"))
    world.cut("a", "p1")
    await world.adopt("p1")
    await asyncio.sleep(12)
    assert (client.unknown, client.refused, other.data) == (["m"], [], [])
    world.heal()
    await asyncio.sleep(2)
    client.held[ack_id] = "m"
    client.ack(ack_id)
    await asyncio.sleep(1)
    assert (client.refused, world.confirmed, world.all_done) == ([], ["m"], True)


@in_simulated_time
async def test_an_ack_under_way_when_its_source_is_granted_anew_is_not_told_as_failed_by_our_own_word() -> None:
    world = await SubscribeWorld.start(exactly_once=True)
    client = await lent_under_a_grant_that_dies_with_its_giver(world)
    (ack_id,) = client.held
    await ack_without_answer(world, client, counted=False)
    await world.adopt("p1")
    await asyncio.sleep(12)
    assert client.data == ["m", "m"]
    client.held[ack_id] = "m"
    client.ack(ack_id)
    await asyncio.sleep(1)
    assert client.refused, "the publish side has said that it was not recorded"
    client.ack()
    await asyncio.sleep(1)
    assert world.confirmed == ["m"]
    assert world.all_done


@pytest.mark.parametrize("then", ["nothing", "sought", "removed"])
@in_simulated_time
async def test_whoever_waits_for_an_ack_hears_of_it_while_the_publish_side_is_asked_what_became_of_it(
    then: str,
) -> None:
    world = await SubscribeWorld.start(exactly_once=True)
    client = await lent_under_a_grant_that_dies_with_its_giver(world)
    await ack_without_answer(world, client, counted=False)
    world.lost_answers.add(("p1", "fetched"))
    await world.adopt("p1")
    await asyncio.sleep(3)
    assert world.fetches["p1"], "the new owner is being asked"
    assert (client.unknown, client.refused, world.confirmed) == ([], [], [])
    if then == "nothing":
        await asyncio.sleep(4)
        assert client.unknown == ["m"]
    elif then == "sought":
        client.forwarder.subscribe.delivery(world.record).on_reset()
    else:
        client.forwarder.subscribe.removed(world.record.incarnation)
    assert (client.unknown, client.refused, world.confirmed) == (["m"], [], []), "it was never recorded"


@pytest.mark.parametrize("end", ["sought", "removed"])
@pytest.mark.parametrize("answered", [True, False])
@in_simulated_time
async def test_an_exactly_once_ack_is_not_confirmed_for_a_seek_or_deletion_others_may_not_know_yet(
    end: str, answered: bool
) -> None:
    world = await SubscribeWorld.start(processes=1, chains=1, exactly_once=True)
    forwarder = world.forwarder("a")
    first = Client(world, forwarder, deadline_s=60)
    await world.publish("m")
    await asyncio.sleep(1)
    (ack_id,) = first.held
    second = Client(world, world.forwarder("b"))  # that has not heard of it
    await asyncio.sleep(1)
    first.ack(ack_id)
    world.cut("a", "p0")  # it does not arrive
    if answered:
        world.break_streams("a")  # its outcome is unknown before the end; otherwise it is under way then
    await asyncio.sleep(0.5)
    assert (first.unknown, first.refused, world.confirmed) == ([], [], [])
    if end == "sought":
        forwarder.subscribe.delivery(world.record).on_reset()
    else:
        forwarder.subscribe.removed(world.record.incarnation)
    await asyncio.sleep(12)
    assert second.data == ["m"], "nothing was recorded"
    assert (first.unknown, first.refused, world.confirmed) == (["m"], [], [])
    if end == "sought":
        world.heal()
        await asyncio.sleep(1)
        first.held[ack_id] = "m"
        first.ack(ack_id)
        await asyncio.sleep(1)
        assert (first.unknown, first.refused) == (["m", "m"], []), "whoever tries again hears the same"


@pytest.mark.parametrize("counted", [True, False])
@in_simulated_time
async def test_what_became_of_an_ack_told_as_unknown_before_a_seek_is_told_after_it(counted: bool) -> None:
    world = await SubscribeWorld.start(processes=1, chains=1, exactly_once=True)
    forwarder = world.forwarder("a")
    client = Client(world, forwarder, deadline_s=60)
    await world.publish("m")
    await asyncio.sleep(1)
    (ack_id,) = client.held
    world.lost_answers.add(("p0", "acknowledged"))
    client.ack(ack_id)
    await asyncio.sleep(20)
    assert client.unknown == ["m"]
    if counted:
        world.lost_answers.clear()
        await asyncio.sleep(16)
    forwarder.subscribe.delivery(world.record).on_reset()
    client.held[ack_id] = "m"
    client.ack(ack_id)
    await asyncio.sleep(1)
    assert client.refused == [], "it may have counted"
    assert (client.unknown, world.confirmed) == ((["m"], ["m"]) if counted else (["m", "m"], []))


@in_simulated_time
async def test_an_exactly_once_ack_of_another_generation_than_is_served_is_refused() -> None:
    world = await SubscribeWorld.start(processes=1, chains=1, exactly_once=True)
    forwarder = world.forwarder("a")
    client = Client(world, forwarder, deadline_s=60)
    await world.publish("m")
    await asyncio.sleep(1)
    (served,) = forwarder.gatherer._served.values()
    served.generation += 1  # it has heard of a seek
    client.ack()
    await asyncio.sleep(1)
    assert (world.confirmed, client.unknown, client.refused) == ([], [], ["m"])


@in_simulated_time
async def test_an_ack_that_need_not_count_once_is_answered_when_its_subscription_is_gone() -> None:
    world = await SubscribeWorld.start(processes=1, chains=1)
    forwarder = world.forwarder("a")
    client = Client(world, forwarder)
    await world.publish("m")
    await asyncio.sleep(1)
    client.ack()
    await world.kill("p0")  # before it arrived
    await asyncio.sleep(0.5)
    assert world.confirmed == []
    forwarder.subscribe.removed(world.record.incarnation)
    await asyncio.sleep(1)
    assert (world.confirmed, client.unknown) == (["m"], [])


@in_simulated_time
async def test_one_failing_step_does_not_end_heartbeats_or_the_others() -> None:
    world = await SubscribeWorld.start(processes=1, chains=1)
    client = Client(world, world.forwarder("a"), deadline_s=2)
    await world.publish("m")
    await asyncio.sleep(1)

    def fails(*_: object) -> None:
        raise AssertionError("a bug")

    gatherer, subscribe = client.forwarder.gatherer, client.forwarder.subscribe
    gatherer._refused.append((SUB_NUMBER, fails))
    gatherer._ask_again = fails  # type: ignore[method-assign]
    subscribe.deliveries[-1] = object()  # type: ignore[assignment]
    await asyncio.sleep(10)
    assert all(peer.up for peer in gatherer.peers.values())
    assert client.data.count("m") > 1, "its deadline is looked at all the same"
    assert -1 not in subscribe.deliveries
    assert gatherer.guard.failures > 3


@pytest.mark.parametrize("exactly_once", [False, True])
@in_simulated_time
async def test_what_a_step_that_failed_in_its_middle_left_undone_is_delivered_again(exactly_once: bool) -> None:
    world = await SubscribeWorld.start(processes=1, chains=1, exactly_once=exactly_once)
    client = Client(world, world.forwarder("a"), deadline_s=2)
    await world.publish("m")
    await asyncio.sleep(1)
    subscribe = client.forwarder.subscribe
    leases = subscribe.delivery(world.record).leases

    def fails(*_: object, **__: object) -> None:
        raise MemoryError

    leases.came_back = fails  # type: ignore[method-assign]
    await asyncio.sleep(10)
    assert (subscribe.guard.failures, client.data.count("m") > 1) == (1, True)


@in_simulated_time
async def test_an_ack_is_not_confirmed_while_its_subscription_is_not_attached_to() -> None:
    world = await SubscribeWorld.start(processes=1, chains=1)
    client = Client(world, world.forwarder("a"), deadline_s=60)
    await world.publish("m")
    await asyncio.sleep(1)
    (ack_id,) = client.held
    delivery = client.forwarder.subscribe.delivery(world.record)
    delivery.publish.detach(world.record.incarnation)  # to begin anew, which failed in its middle
    client.ack(ack_id)
    await asyncio.sleep(0.3)
    assert world.confirmed == []
    delivery.begin_anew()
    await asyncio.sleep(1)
    assert (world.confirmed, world.all_done) == (["m"], True)


@pytest.mark.parametrize("answered", [True, False])
@in_simulated_time
async def test_an_ack_that_is_not_recorded_is_not_confirmed_when_everything_is_begun_anew(answered: bool) -> None:
    world = await SubscribeWorld.start(processes=1, chains=1)
    client = Client(world, world.forwarder("a"), deadline_s=60)
    await world.publish("m")
    await asyncio.sleep(1)
    (ack_id,) = client.held
    if answered:
        await ack_without_answer(world, client, counted=False)
        await asyncio.sleep(0.3)
        client.forwarder.subscribe.delivery(world.record).begin_anew()
    else:
        world.processes["p0"].paused = True
        client.ack(ack_id)
        await asyncio.sleep(0.02)
        client.forwarder.subscribe.delivery(world.record).begin_anew()  # it is under way
        await world.kill("p0")
    await asyncio.sleep(0.3)
    assert world.confirmed == []
    await world.adopt("p1")
    await asyncio.sleep(3)
    assert (world.confirmed, world.all_done) == (["m"], True)


@in_simulated_time
async def test_what_goes_on_failing_is_begun_anew_ever_more_seldom() -> None:
    world = await SubscribeWorld.start(processes=1, chains=1)
    client = Client(world, world.forwarder("a"))
    await world.publish("m")
    await asyncio.sleep(1)
    subscribe = client.forwarder.subscribe
    delivery = subscribe.delivery(world.record)
    begun: list[float] = []

    def fails(now: float) -> None:
        raise AssertionError("a bug")

    delivery.review = fails  # type: ignore[method-assign]
    delivery.begin_anew = lambda: begun.append(world.clock.monotonic())  # type: ignore[method-assign]
    await asyncio.sleep(40)
    waits = [later - earlier for earlier, later in pairwise(begun)]
    assert 1 < len(begun) <= 6
    assert waits == sorted(waits)


@in_simulated_time
async def test_keys_wait_for_what_another_forwarder_still_has_of_the_epoch_before() -> None:
    world = await SubscribeWorld.start(processes=2, chains=2, ordered=True)
    world.chains.assign(1)
    slow = Client(world, world.forwarder("a"))
    await asyncio.sleep(1)
    for number in range(3):
        await world.publish(f"k:{number}", key="k")
    await asyncio.sleep(1)
    assert slow.data == ["k:0", "k:1", "k:2"]
    fast = Client(world, world.forwarder("b"))
    await asyncio.sleep(1)
    world.chains.assign(2)
    await world.publish("k:3", key="k")
    await asyncio.sleep(3)
    everything = slow.data + fast.data
    assert "k:3" not in everything or everything.index("k:3") == 3
    slow.ack()
    await asyncio.sleep(5)
    assert "k:3" in slow.data + fast.data


@in_simulated_time
async def test_keys_do_not_wait_for_sources_of_a_chain_that_let_go_of_the_topic_meanwhile() -> None:
    world = await SubscribeWorld.start(processes=2, chains=2, ordered=True)
    world.chains.assign(1)
    first = Client(world, world.forwarder("a"))
    await asyncio.sleep(1)
    assert await world.publish("k:0", key="k")
    await asyncio.sleep(1)
    assert first.data == ["k:0"]
    second = Client(world, world.forwarder("b"))
    await asyncio.sleep(1)
    world.cut("b")
    world.chains.assign(2)
    first.ack()
    await asyncio.sleep(5)
    await world.processes["p1"].host.close(1)  # which ends its log, so that it can be deleted
    world.orphans = [1]
    await world.adopt("p1")
    await asyncio.sleep(100)
    assert world.chains_of(TOPIC_NUMBER) == [], "nothing of the topic is left in the chain"
    first.leave()
    await asyncio.sleep(5)
    world.heal()
    world.cut("b", "p1")
    await asyncio.sleep(5)  # it hears of the new epoch, and looks which chains hold sources of the topic
    world.heal()
    await world.publish("k:1", key="k")
    await asyncio.sleep(9)
    assert second.data == ["k:1"]


@in_simulated_time
async def test_streams_of_one_process_are_numbered_upward_whatever_peers_come_and_go() -> None:
    world = await SubscribeWorld.start(processes=2, chains=2)
    forwarder = world.forwarder("a")
    Client(world, forwarder)
    await asyncio.sleep(1)
    await world.kill("p1")
    await world.adopt("p1")
    await asyncio.sleep(1)
    assert len(world.hellos) >= 3
    assert [hello.stream for hello in world.hellos] == list(range(1, len(world.hellos) + 1))


@in_simulated_time
async def test_nobody_is_spoken_to_before_the_process_is_a_member() -> None:
    world = await SubscribeWorld.start(processes=1, chains=1)
    forwarder = world.forwarder("a", registered=None)
    Client(world, forwarder)
    await world.publish("m")
    await asyncio.sleep(1)
    assert not world.hellos
    forwarder.gatherer.join(99)
    await asyncio.sleep(1)
    assert [hello.registered for hello in world.hellos] == [99]
    assert world.delivered == ["m"]


@in_simulated_time
async def test_a_new_stream_says_what_is_served_and_nothing_of_before() -> None:
    world = await SubscribeWorld.start(processes=1, chains=1)
    forwarder = world.forwarder("a")
    client = Client(world, forwarder)
    await asyncio.sleep(1)
    client.leave()
    world.cut("a", "p0")
    await asyncio.sleep(20)
    world.heal()
    await asyncio.sleep(2)
    assert world.serves[0] == [SUB_NUMBER]
    assert world.serves[-1] == []


@pytest.mark.parametrize("options", [{"exactly_once": True}, {"ordered": True}, {}])
@in_simulated_time
async def test_nothing_strict_is_lent_of_a_chain_that_its_process_may_have_lost(options: dict[str, bool]) -> None:
    world = await SubscribeWorld.start(processes=1, chains=1, **options)
    client = Client(world, world.forwarder("a"), most=1, deadline_s=60)
    await world.publish("read")
    await world.publish("ahead")
    await asyncio.sleep(1)
    assert client.data == ["read"]
    process = world.processes["p0"]
    process.paused = True
    await asyncio.sleep(HOLD_S + 1)
    client.consumer.max_messages = 10
    client.forwarder.subscribe.wake(SUB_NUMBER)
    await asyncio.sleep(10)
    assert client.data == (["read"] if options else ["read", "ahead"])
    process.paused = False
    await asyncio.sleep(3)
    assert client.data == ["read", "ahead"], "neither is lost nor lent again"
    client.ack()
    await asyncio.sleep(1)
    assert world.all_done


@pytest.mark.parametrize("options", [{"exactly_once": True}, {"ordered": True}, {}])
@in_simulated_time
async def test_nothing_strict_is_lent_of_a_chain_that_its_process_says_it_has_lost(options: dict[str, bool]) -> None:
    """Whoever hears nothing from the metadata knows no other owner; that this one has ceased is enough."""
    world = await SubscribeWorld.start(processes=1, chains=1, **options)
    client = Client(world, world.forwarder("a"), most=1, deadline_s=60)
    await world.publish("read")
    await world.publish("ahead")
    await asyncio.sleep(1)
    process = world.processes["p0"]
    world.chains.assign(1)
    await process.host.close(1)
    world.orphans = [1]
    await asyncio.sleep(0.2)
    client.consumer.max_messages = 10
    client.forwarder.subscribe.wake(SUB_NUMBER)
    await asyncio.sleep(2)
    assert client.data == (["read"] if options else ["read", "ahead"])
    await world.adopt("p0")
    await asyncio.sleep(12)
    assert set(client.data) == {"read", "ahead"}


@in_simulated_time
async def test_who_does_not_know_that_it_lost_a_chain_puts_no_grant_of_its_new_owner_in_doubt() -> None:
    world = await SubscribeWorld.start(processes=2, chains=4, exactly_once=True)
    client = Client(world, world.forwarder("a"))
    await asyncio.sleep(1)
    await world.publish("of before", chain=2)
    await asyncio.sleep(1)
    client.ack()
    await asyncio.sleep(1)
    world.processes["p0"].paused = True  # it goes on with what it believes, and its disks obey it no more
    world.orphans = [2]
    await world.adopt("p1")
    assert world.owners()[2] == "p1"
    await asyncio.sleep(GRANT_S + HOLD_S)
    await world.publish("m", chain=2)
    await asyncio.sleep(3)
    assert client.data == ["of before", "m"]
    client.ack()
    await asyncio.sleep(1)
    assert world.confirmed == ["of before", "m"]


@pytest.mark.parametrize("options", [{"exactly_once": True}, {"ordered": True}])
@in_simulated_time
async def test_what_was_granted_while_no_owner_was_known_is_in_doubt_once_one_is(options: dict[str, bool]) -> None:
    world = await SubscribeWorld.start(processes=2, chains=4, **options)
    client = Client(world, world.forwarder("a"), most=1, deadline_s=60)
    for text in ("read", "ahead"):
        await world.publish(text, chain=2)
    await asyncio.sleep(1)
    assert client.data == ["read"]
    owners = {number: address for number, address in world.owners().items() if number != 2}
    world.owners = lambda: owners  # type: ignore[method-assign]
    world.chains.assign(1, 2, 3, 4)  # which seals its source, and names it anew
    await asyncio.sleep(0.15)
    owners = {**owners, 2: "p1"}
    await asyncio.sleep(0.15)
    client.consumer.max_messages = 10
    client.forwarder.subscribe.wake(SUB_NUMBER)
    await asyncio.sleep(0.02)
    assert client.data == ["read"]
    await world.processes["p0"].host.close(2)
    world.orphans = [2]
    del world.owners  # type: ignore[method-assign]
    await world.adopt("p1")
    await asyncio.sleep(GRANT_S + 1)
    assert set(client.data) == {"read", "ahead"}


@in_simulated_time
async def test_an_answer_that_comes_between_two_looks_at_a_silent_process_ends_the_doubt() -> None:
    """Whoever lends looks first, and finds it silent; before the next tick it is heard, and its stream goes on."""
    world = await SubscribeWorld.start(processes=1, chains=1, exactly_once=True)
    forwarder = world.forwarder("a")
    client = Client(world, forwarder)
    await asyncio.sleep(1)
    (peer,) = forwarder.gatherer.peers.values()
    heard = peer._heard
    peer._heard = world.clock.monotonic() - HOLD_S
    forwarder.gatherer.check_grants(SUB_NUMBER)
    peer._heard = heard
    await world.publish("m")
    await asyncio.sleep(3)
    assert client.data == ["m"]


@in_simulated_time
async def test_who_was_paused_looks_at_the_clock_before_it_lends() -> None:
    world = await SubscribeWorld.start(processes=1, chains=1, exactly_once=True)
    client = Client(world, world.forwarder("a"), most=1, deadline_s=60)
    await world.publish("read")
    await world.publish("ahead")
    await asyncio.sleep(1)
    assert client.data == ["read"]
    world.clock.advance(GRANT_S + 5)  # the process stood still
    client.consumer.max_messages = 10
    client.forwarder.subscribe.wake(SUB_NUMBER)
    await asyncio.sleep(0.02)
    assert client.data == ["read"]
    await asyncio.sleep(10)
    assert set(client.data) == {"read", "ahead"}


STEPS = ["publish", "publish", "publish", "break", "kill", "adopt", "assign", "cut", "alone", "heal", "leave", "join"]


class Storm:
    """Three forwarders and five chains while links break, processes die, chains move, the topic is spread anew."""

    def __init__(self, world: SubscribeWorld) -> None:
        self.world, self.ordered, self.once = world, world.record.ordered, world.record.exactly_once
        self.clients = [Client(world, world.forwarder(name), deadline_s=(10, 60)[self.chance(2)]) for name in "abc"]
        self.sent: list[str] = []

    def chance(self, end: int) -> int:
        return self.world.random.randrange(0, end)

    async def run(self) -> None:
        for _ in range(10 + self.chance(25)):
            await self.step(STEPS[self.chance(len(STEPS))])
            if self.chance(2):
                self.work(0.3)
            await asyncio.sleep((0.1, 0.5, 2.0, 6.0)[self.chance(4)])
        self.world.heal()
        await self.step("adopt")
        await self.step("join")
        for _ in range(400):
            self.work(0.7)
            await asyncio.sleep(0.5)
            if self.world.all_done and not any(client.held for client in self.clients):
                break
        self.check()

    async def step(self, step: str) -> None:
        world, processes = self.world, sorted(self.world.processes)
        if step == "publish":
            for _ in range(4):
                key = ("", "a", "b", "c")[self.chance(4)]
                if await world.publish(f"{key}:{len(self.sent)}", key=key):
                    self.sent.append(f"{key}:{len(self.sent)}")
        elif step == "break":
            world.break_streams("abc"[self.chance(3)], address=processes[self.chance(len(processes))])
        elif step == "kill" and len(processes) > 1 and not world.orphans:
            await world.kill(processes[0])
        elif step == "adopt" and world.orphans:
            await world.adopt(processes[-1])
        elif step == "assign" and not world.orphans:
            world.chains.assign(*([n for n in range(1, 6) if self.chance(2)] or [1]))
        elif step == "cut":
            world.cut("abc"[self.chance(3)], processes[0])
        elif step == "alone":
            world.cut("abc"[self.chance(3)])
        elif step == "heal":
            world.heal()
        elif step == "leave" and self.clients:
            self.clients.pop(0).leave()
        elif step == "join":
            for forwarder in world.forwarders:
                if all(client.forwarder is not forwarder for client in self.clients):
                    self.clients.append(Client(world, forwarder, deadline_s=(10, 60)[self.chance(2)]))

    def work(self, chance: float) -> None:
        for client in self.clients:
            for ack_id in list(client.held):
                if ack_id in client.held and self.world.random.random() < chance:
                    if not self.once and self.world.random.random() < 0.1:
                        client.nack(ack_id)
                    else:
                        client.ack(ack_id)

    def check(self) -> None:
        assert self.world.all_done, "something was not delivered"
        assert set(self.world.delivered) == set(self.sent)
        if self.once:
            assert len(self.world.confirmed) == len(set(self.world.confirmed))
        if self.ordered:
            for key in "abc":
                first_seen = dict.fromkeys(text for text in self.world.delivered if text.startswith(key))
                assert list(first_seen) == [text for text in self.sent if text.startswith(key)]


@pytest.mark.parametrize("kind", [(), ("ordered",), ("exactly_once",), ("ordered", "exactly_once")])
@pytest.mark.parametrize("seed", range(4))
@in_simulated_time
async def test_everything_is_delivered_once_confirmed_once_and_in_order_through_any_storm(
    seed: int, kind: tuple[str, ...]
) -> None:
    options = dict.fromkeys(kind, True)
    world = await SubscribeWorld.start(processes=3, chains=5, delay_s=0.2, seed=seed, **options)
    await Storm(world).run()
