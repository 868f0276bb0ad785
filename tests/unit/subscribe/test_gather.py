"""One subscription from many chains: fairness, losing and taking over grants, order over several chains."""

import copy
import math
from itertools import pairwise

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from syncpoint.kernel.acks import AckSet
from syncpoint.model.times import GRANT_S, HOLD_S
from syncpoint.wire.messages import internal
from tests.kit.subscribers import SUB_NUMBER, Chain, Client, GatherWorld


def test_one_subscriber_is_served_from_sixteen_sources() -> None:
    world = GatherWorld(processes=4, chains=16)
    client = Client(world, world.forwarder("a"))
    for number in range(200):
        world.publish(str(number))
    world.advance(1)
    assert sorted(client.data, key=int) == [str(number) for number in range(200)]


def test_pulls_of_one_message_take_turns_over_sixteen_sources() -> None:
    world = GatherWorld(processes=2, chains=16)
    forwarder = world.forwarder("a")
    world.advance(0.5)
    for chain in world.chains.values():
        for number in range(3):
            for process in world.processes.values():
                if chain.number in process.chains:
                    process.append(chain, f"{chain.number}:{number}", "")
    seen = []
    for _ in range(16):
        client = Client(world, forwarder, most=1, single=True)
        world.advance(0.3)
        seen += client.data
        for ack_id in list(client.held):
            client.ack(ack_id)
    assert len({one.partition(":")[0] for one in seen}) == 16, seen


def test_sources_go_where_somebody_listens() -> None:
    world = GatherWorld(processes=2, chains=4)
    first = Client(world, world.forwarder("a"))
    second = world.forwarder("b")
    world.advance(1)
    world.publish("one")
    world.advance(1)
    assert first.data == ["one"]
    first.ack(*first.held)
    first.leave()
    client = Client(world, second)
    world.advance(15)
    for number in range(10):
        world.publish(str(number))
    world.advance(3)
    assert sorted(client.data) == [str(number) for number in range(10)]


def test_a_new_owner_of_a_chain_is_found_and_nothing_is_lost() -> None:
    world = GatherWorld(processes=3, chains=6)
    client = Client(world, world.forwarder("a"))
    for number in range(30):
        world.publish(str(number))
    world.advance(1)
    chains = world.kill("p1")
    held = list(client.held)
    for ack_id in held:
        client.ack(ack_id)  # some of these can not be recorded now
    world.changed()
    world.advance(3)
    world.adopt(chains, "p2")
    for number in range(30, 60):
        world.publish(str(number))
    world.advance(3)
    for ack_id in list(client.held):
        client.ack(ack_id)
    world.advance(3)
    assert set(client.data) == {str(number) for number in range(60)}
    assert world.all_done
    assert not client.refused


def test_an_exactly_once_ack_under_a_lost_grant_fails_and_the_message_is_acked_once() -> None:
    world = GatherWorld(processes=1, chains=1, exactly_once=True)
    first = Client(world, world.forwarder("a"))
    world.publish("m")
    world.advance(1)
    (ack_id,) = first.held
    second = Client(world, world.forwarder("b"))
    world.advance(1)
    assert not second.data, "the grant stays where it is"
    world.cut.add(("a", "p0"))
    world.advance(8)
    assert second.data == ["m"], "the old grant is over"
    first.ack(ack_id)
    assert list(first.held) == [ack_id], "refused at once: nobody is to be reached"
    world.cut.clear()
    world.advance(1)
    first.ack(ack_id)
    second.ack(*second.held)
    world.advance(8)
    assert world.confirmed == ["m"]
    assert first.refused == ["m"]
    assert world.all_done


def test_sources_follow_a_client_that_moved_as_soon_as_nothing_is_lent_where_it_was() -> None:
    world = GatherWorld(processes=1, chains=1, exactly_once=True)
    first = Client(world, world.forwarder("a"), deadline_s=60)
    world.publish("m")
    world.advance(1)
    second = Client(world, world.forwarder("b"))
    first.leave()
    world.publish("n")
    world.advance(3)
    assert not second.data, "what is lent may still be acknowledged"
    first.ack(*first.held)
    world.advance(1)
    assert world.confirmed == ["m"]
    assert second.data == ["n"]


def test_a_message_lent_to_a_client_that_is_gone_does_not_keep_the_others_from_who_wants_them() -> None:
    for options in ({"exactly_once": True}, {"ordered": True}):
        world = GatherWorld(processes=1, chains=1, **options)
        first = Client(world, world.forwarder("a"), deadline_s=600)
        world.publish("m")
        world.advance(1)
        second = Client(world, world.forwarder("b"))
        first.leave()
        world.publish("n")
        world.advance(20)
        assert second.data == ["m", "n"]
        for ack_id in list(second.held):
            second.ack(ack_id)
        world.advance(1)
        assert world.all_done


def test_an_exactly_once_lease_outlives_a_short_break() -> None:
    world = GatherWorld(processes=1, chains=1, exactly_once=True)
    client = Client(world, world.forwarder("a"))
    world.publish("m")
    world.advance(1)
    for door in world.doors:
        door.broken()
    world.advance(2)
    client.ack(*client.held)
    world.advance(1)
    assert world.confirmed == ["m"]
    assert client.data == ["m"]


def test_an_exactly_once_ack_nobody_answers_is_unknown_and_can_be_tried_again() -> None:
    world = GatherWorld(processes=1, chains=1, exactly_once=True)
    client = Client(world, world.forwarder("a"))
    world.publish("m")
    world.advance(1)
    (ack_id,) = client.held
    client.ack(ack_id)
    (chain,) = world.kill("p0")  # before it arrived
    world.advance(7)
    assert client.unknown == ["m"]
    world.adopt([chain], "p1")
    world.advance(2)
    client.held[ack_id] = "m"
    client.ack(ack_id)
    world.advance(1)
    assert world.confirmed == ["m"]
    assert world.all_done


@pytest.mark.parametrize("counted", [True, False])
def test_an_ack_under_way_when_its_source_is_granted_anew_is_not_told_as_failed_by_our_own_word(counted: bool) -> None:
    world = GatherWorld(processes=1, chains=1, exactly_once=True)
    client = Client(world, world.forwarder("a"), deadline_s=60)
    world.publish("m")
    world.advance(1)
    (ack_id,) = client.held
    process = world.processes["p0"]
    process.mute = True
    client.ack(ack_id)
    world.settle()
    (chain,) = world.kill("p0")  # it has been written, or not, and the answer is lost
    if not counted:
        chain.sources[0].acks = AckSet()
    chain.known.clear()  # so the new owner can only grant anew
    world.advance(1)
    world.adopt([chain], "p1")
    world.advance(12)
    if counted:
        assert (client.unknown, client.refused) == (["m"], [])
        assert client.data == ["m"]
        client.held[ack_id] = "m"
        client.ack(ack_id)
        world.advance(1)
        assert client.refused == []
    else:
        assert client.data == ["m", "m"]
        client.held[ack_id] = "m"
        client.ack(ack_id)
        world.advance(1)
        assert client.refused, "the publish side has said that it was not recorded"
        for one in list(client.held):
            client.ack(one)
        world.advance(1)
        assert world.confirmed == ["m"]
    assert world.all_done


@pytest.mark.parametrize("then", ["nothing", "sought", "removed"])
def test_whoever_waits_for_an_ack_hears_of_it_while_the_publish_side_is_asked_what_became_of_it(then: str) -> None:
    world = GatherWorld(processes=1, chains=1, exactly_once=True)
    forwarder = world.forwarder("a")
    client = Client(world, forwarder, deadline_s=60)
    world.publish("m")
    world.advance(1)
    (ack_id,) = client.held
    world.processes["p0"].mute = True
    client.ack(ack_id)
    world.settle()
    (chain,) = world.kill("p0")
    chain.sources[0].acks = AckSet()  # it was not written
    chain.known.clear()
    world.adopt([chain], "p1")
    chain.waits_until = 0.0  # granted anew at once
    world.processes["p1"].slow = True
    world.advance(3)
    assert world.processes["p1"].fetches, "the new owner is being asked"
    assert (client.unknown, client.refused, world.confirmed) == ([], [], [])
    if then == "nothing":
        world.advance(4)
        assert client.unknown == ["m"]
    elif then == "sought":
        forwarder.subscribe.delivery(world.record).on_reset()
    else:
        forwarder.subscribe.removed(world.record.incarnation)
    assert (client.unknown, client.refused, world.confirmed) == (["m"], [], []), "it was never recorded"


@pytest.mark.parametrize("end", ["sought", "removed"])
@pytest.mark.parametrize("answered", [True, False])
def test_an_exactly_once_ack_is_not_confirmed_for_a_seek_or_deletion_others_may_not_know_yet(
    end: str, answered: bool
) -> None:
    world = GatherWorld(processes=1, chains=1, exactly_once=True)
    forwarder = world.forwarder("a")
    first = Client(world, forwarder, deadline_s=60)
    world.publish("m")
    world.advance(1)
    (ack_id,) = first.held
    second = Client(world, world.forwarder("b"))  # that has not heard of it
    world.advance(1)
    first.ack(ack_id)
    world.cut.add(("a", "p0"))  # it does not arrive
    for door in world.doors:
        if door.member == "a" and answered:
            door.broken()  # its outcome is unknown before the end; otherwise it is under way then
    world.advance(0.5)
    assert (first.unknown, first.refused, world.confirmed) == ([], [], [])
    if end == "sought":
        forwarder.subscribe.delivery(world.record).on_reset()
    else:
        forwarder.subscribe.removed(world.record.incarnation)
    world.advance(12)
    assert second.data == ["m"], "nothing was recorded"
    assert (first.unknown, first.refused, world.confirmed) == (["m"], [], [])
    if end == "sought":
        world.cut.clear()
        world.advance(1)
        first.held[ack_id] = "m"
        first.ack(ack_id)
        world.advance(1)
        assert (first.unknown, first.refused) == (["m", "m"], []), "whoever tries again hears the same"


@pytest.mark.parametrize("counted", [True, False])
def test_what_became_of_an_ack_told_as_unknown_before_a_seek_is_told_after_it(counted: bool) -> None:
    world = GatherWorld(processes=1, chains=1, exactly_once=True)
    forwarder = world.forwarder("a")
    client = Client(world, forwarder, deadline_s=60)
    world.publish("m")
    world.advance(1)
    (ack_id,) = client.held
    world.processes["p0"].mute = True
    client.ack(ack_id)
    world.advance(20)
    assert client.unknown == ["m"]
    if counted:
        world.processes["p0"].mute = False
        world.advance(16)
    forwarder.subscribe.delivery(world.record).on_reset()
    client.held[ack_id] = "m"
    client.ack(ack_id)
    world.advance(1)
    assert client.refused == [], "it may have counted"
    assert (client.unknown, world.confirmed) == ((["m"], ["m"]) if counted else (["m", "m"], []))


def test_an_exactly_once_ack_of_another_generation_than_is_served_is_refused() -> None:
    world = GatherWorld(processes=1, chains=1, exactly_once=True)
    forwarder = world.forwarder("a")
    client = Client(world, forwarder, deadline_s=60)
    world.publish("m")
    world.advance(1)
    (served,) = forwarder.gatherer._served.values()
    served.generation += 1  # it has heard of a seek
    client.ack(*client.held)
    world.advance(1)
    assert (world.confirmed, client.unknown, client.refused) == ([], [], ["m"])


def test_an_ack_that_need_not_count_once_is_answered_when_its_subscription_is_gone() -> None:
    world = GatherWorld(processes=1, chains=1)
    forwarder = world.forwarder("a")
    client = Client(world, forwarder)
    world.publish("m")
    world.advance(1)
    client.ack(*client.held)
    world.kill("p0")  # before it arrived
    world.advance(0.5)
    assert world.confirmed == []
    forwarder.subscribe.removed(world.record.incarnation)
    world.advance(1)
    assert (world.confirmed, client.unknown) == (["m"], [])


def test_one_failing_step_does_not_end_heartbeats_or_the_others() -> None:
    world = GatherWorld(processes=1, chains=1)
    client = Client(world, world.forwarder("a"), deadline_s=2)
    world.publish("m")
    world.advance(1)

    def fails(*_: object) -> None:
        raise AssertionError("a bug")

    gatherer, subscribe = client.forwarder.gatherer, client.forwarder.subscribe
    gatherer._refused.append((SUB_NUMBER, fails))
    gatherer._ask_again = fails  # type: ignore[method-assign]
    subscribe.deliveries[-1] = object()  # type: ignore[assignment]
    world.advance(10)
    assert all(peer.up for peer in gatherer.peers.values())
    assert client.data.count("m") > 1, "its deadline is looked at all the same"
    assert -1 not in subscribe.deliveries
    assert gatherer.guard.failures > 3


@pytest.mark.parametrize("exactly_once", [False, True])
def test_what_a_step_that_failed_in_its_middle_left_undone_is_delivered_again(exactly_once: bool) -> None:
    world = GatherWorld(processes=1, chains=1, exactly_once=exactly_once)
    client = Client(world, world.forwarder("a"), deadline_s=2)
    world.publish("m")
    world.advance(1)
    subscribe = client.forwarder.subscribe
    leases = subscribe.delivery(world.record).leases

    def fails(*_: object, **__: object) -> None:
        raise MemoryError

    leases.came_back = fails  # type: ignore[method-assign]
    world.advance(10)
    assert (subscribe.guard.failures, client.data.count("m") > 1) == (1, True)


def test_an_ack_is_not_confirmed_while_its_subscription_is_not_attached_to() -> None:
    world = GatherWorld(processes=1, chains=1)
    client = Client(world, world.forwarder("a"), deadline_s=60)
    world.publish("m")
    world.advance(1)
    (ack_id,) = client.held
    delivery = client.forwarder.subscribe.delivery(world.record)
    delivery.publish.detach(world.record.incarnation)  # to begin anew, which failed in its middle
    client.ack(ack_id)
    world.advance(0.3)
    assert (world.confirmed, world.all_done) == ([], False)
    delivery.begin_anew()
    world.advance(1)
    assert (world.confirmed, world.all_done) == (["m"], True)


@pytest.mark.parametrize("answered", [True, False])
def test_an_ack_that_is_not_recorded_is_not_confirmed_when_everything_is_begun_anew(answered: bool) -> None:
    world = GatherWorld(processes=1, chains=1)
    client = Client(world, world.forwarder("a"), deadline_s=60)
    world.publish("m")
    world.advance(1)
    (ack_id,) = client.held
    world.processes["p0"].mute = not answered
    client.ack(ack_id)
    if answered:
        (chain,) = world.kill("p0")  # before it arrived: its outcome is unknown
        world.advance(0.3)
        client.forwarder.subscribe.delivery(world.record).begin_anew()
    else:
        world.settle()
        client.forwarder.subscribe.delivery(world.record).begin_anew()  # it is under way
        (chain,) = world.kill("p0")
        chain.sources[0].acks = AckSet()  # it was not written
    world.advance(0.3)
    assert (world.confirmed, world.all_done) == ([], False)
    world.adopt([chain], "p1")
    world.advance(3)
    assert (world.confirmed, world.all_done) == (["m"], True)


def test_what_goes_on_failing_is_begun_anew_ever_more_seldom() -> None:
    world = GatherWorld(processes=1, chains=1)
    client = Client(world, world.forwarder("a"))
    world.publish("m")
    world.advance(1)
    subscribe = client.forwarder.subscribe
    delivery = subscribe.delivery(world.record)
    begun: list[float] = []

    def fails(now: float) -> None:
        raise AssertionError("a bug")

    delivery.review = fails  # type: ignore[method-assign]
    delivery.begin_anew = lambda: begun.append(world.clock.monotonic())  # type: ignore[method-assign]
    world.advance(40)
    waits = [later - earlier for earlier, later in pairwise(begun)]
    assert 1 < len(begun) <= 6
    assert waits == sorted(waits)


def test_keys_wait_for_what_another_forwarder_still_has_of_the_epoch_before() -> None:
    world = GatherWorld(processes=2, chains=2, ordered=True)
    world.assigned = [1]
    slow = Client(world, world.forwarder("a"))
    world.advance(1)
    for number in range(3):
        world.publish(f"k:{number}", key="k")
    world.advance(1)
    assert slow.data == ["k:0", "k:1", "k:2"]
    fast = Client(world, world.forwarder("b"))
    world.advance(1)
    world.assign([2])
    for process in world.processes.values():  # the new source of the second chain goes to the second forwarder
        for source, (_, member) in list(process.chains[2].grants.items()) if 2 in process.chains else ():
            if member == "a":
                process.revoke(process.chains[2], source)
    world.publish("k:3", key="k")
    world.advance(3)
    everything = slow.data + fast.data
    assert "k:3" not in everything or everything.index("k:3") == 3
    for ack_id in list(slow.held):
        slow.ack(ack_id)
    world.advance(5)
    assert "k:3" in slow.data + fast.data


def test_keys_do_not_wait_for_sources_of_a_chain_that_let_go_of_the_topic_meanwhile() -> None:
    world = GatherWorld(processes=2, chains=2, ordered=True)
    world.assigned = [1]
    first = Client(world, world.forwarder("a"))
    world.advance(1)
    assert world.publish("k:0", key="k")
    world.advance(1)
    assert first.data == ["k:0"]
    second = Client(world, world.forwarder("b"))
    world.advance(1)
    world.cut = {("b", address) for address in world.processes}
    world.assign([2])
    first.ack(*first.held)
    world.advance(10)
    world.chains[1].sources.clear()  # nothing of the topic is left in it
    first.leave()
    world.changed()
    world.advance(5)
    world.cut = {("b", "p1")}
    world.advance(5)  # it hears of the new epoch, and looks which chains hold sources of the topic
    world.cut.clear()
    world.publish("k:1", key="k")
    world.advance(9)
    assert second.data == ["k:1"]


def test_streams_of_one_process_are_numbered_upward_whatever_peers_come_and_go() -> None:
    world = GatherWorld(processes=2, chains=2)
    forwarder = world.forwarder("a")
    Client(world, forwarder)
    world.advance(1)
    chains = world.kill("p1")
    world.changed()
    world.adopt(chains, "p1")
    world.advance(1)
    assert len(world.hellos) >= 3
    assert [hello.stream for hello in world.hellos] == list(range(1, len(world.hellos) + 1))


def test_nobody_is_spoken_to_before_the_process_is_a_member() -> None:
    world = GatherWorld(processes=1, chains=1)
    forwarder = world.forwarder("a", registered=None)
    Client(world, forwarder)
    world.publish("m")
    world.advance(1)
    assert not world.hellos
    forwarder.gatherer.join(99)
    world.advance(1)
    assert [hello.registered for hello in world.hellos] == [99]
    assert world.delivered == ["m"]


def test_a_new_stream_says_what_is_served_and_nothing_of_before() -> None:
    world = GatherWorld(processes=1, chains=1)
    forwarder = world.forwarder("a")
    client = Client(world, forwarder)
    world.advance(1)
    client.leave()
    world.cut.add(("a", "p0"))
    world.advance(20)
    world.cut.clear()
    world.advance(2)
    assert world.serves[0] == [SUB_NUMBER]
    assert world.serves[-1] == []


@pytest.mark.parametrize("options", [{"exactly_once": True}, {"ordered": True}, {}])
def test_nothing_strict_is_lent_of_a_chain_that_its_process_may_have_lost(options: dict[str, bool]) -> None:
    world = GatherWorld(processes=1, chains=1, **options)
    client = Client(world, world.forwarder("a"), most=1, deadline_s=60)
    world.publish("read")
    world.publish("ahead")
    world.advance(1)
    assert client.data == ["read"]
    process = world.processes["p0"]
    process.obeyed_until = world.clock.monotonic()
    world.advance(HOLD_S + 1)
    client.consumer.max_messages = 10
    client.forwarder.subscribe.wake(SUB_NUMBER)
    world.advance(10)
    assert client.data == (["read"] if options else ["read", "ahead"])
    process.obeyed_until = math.inf
    world.advance(3)
    assert client.data == ["read", "ahead"], "neither is lost nor lent again"
    for ack_id in list(client.held):
        client.ack(ack_id)
    world.advance(1)
    assert world.all_done


@pytest.mark.parametrize("options", [{"exactly_once": True}, {"ordered": True}, {}])
def test_nothing_strict_is_lent_of_a_chain_that_its_process_says_it_has_lost(options: dict[str, bool]) -> None:
    """Whoever hears nothing from the metadata knows no other owner; that this one has ceased is enough."""
    world = GatherWorld(processes=1, chains=1, **options)
    client = Client(world, world.forwarder("a"), most=1, deadline_s=60)
    world.publish("read")
    world.publish("ahead")
    world.advance(1)
    process = world.processes["p0"]
    lost = dict(process.chains)
    process.chains.clear()
    for session in process.sessions.values():
        session.tell(owned=internal.Owned())
    world.advance(0.2)
    client.consumer.max_messages = 10
    client.forwarder.subscribe.wake(SUB_NUMBER)
    world.advance(2)
    assert client.data == (["read"] if options else ["read", "ahead"])
    world.adopt(list(lost.values()), "p0")
    world.advance(12)
    assert set(client.data) == {"read", "ahead"}


def test_who_does_not_know_that_it_lost_a_chain_puts_no_grant_of_its_new_owner_in_doubt() -> None:
    world = GatherWorld(processes=2, chains=4, exactly_once=True)
    client = Client(world, world.forwarder("a"))
    world.advance(1)
    old, heir, chain = world.processes["p0"], world.processes["p1"], world.chains[2]
    old.chains[2] = copy.deepcopy(chain)  # it goes on with what it believes, and its disks obey it no more
    old.obeyed_until = world.clock.monotonic()
    world.adopt([chain], "p1")
    assert world.owners()[2] == "p1"
    world.advance(GRANT_S + HOLD_S)
    heir.append(chain, "m", "")
    world.advance(3)
    assert client.data == ["m"]
    client.ack(*client.held)
    world.advance(1)
    assert world.confirmed == ["m"]


@pytest.mark.parametrize("options", [{"exactly_once": True}, {"ordered": True}])
def test_what_was_granted_while_no_owner_was_known_is_in_doubt_once_one_is(options: dict[str, bool]) -> None:
    world = GatherWorld(processes=2, chains=4, **options)
    client = Client(world, world.forwarder("a"), most=1, deadline_s=60)
    old, chain = world.processes["p0"], world.chains[2]
    for text in ("read", "ahead"):
        old.append(chain, text, "")
    world.advance(1)
    assert client.data == ["read"]
    owners = {number: address for number, address in world.owners().items() if number != 2}
    world.owners = lambda: owners  # type: ignore[method-assign]
    world.changed()
    old.name_all(chain)
    world.settle()
    owners = {**owners, 2: "p1"}
    world.changed()
    client.consumer.max_messages = 10
    client.forwarder.subscribe.wake(SUB_NUMBER)
    world.settle()
    assert client.data == ["read"]
    del old.chains[2]
    world.adopt([chain], "p1")
    world.advance(GRANT_S + 1)
    assert set(client.data) == {"read", "ahead"}


def test_an_answer_that_comes_between_two_looks_at_a_silent_process_ends_the_doubt() -> None:
    """Whoever lends looks first, and finds it silent; before the next tick it is heard, and its stream goes on."""
    world = GatherWorld(processes=1, chains=1, exactly_once=True)
    forwarder = world.forwarder("a")
    client = Client(world, forwarder)
    world.advance(1)
    (peer,) = forwarder.gatherer.peers.values()
    heard = peer._heard
    peer._heard = world.clock.monotonic() - HOLD_S
    forwarder.gatherer.check_grants(SUB_NUMBER)
    peer._heard = heard
    world.publish("m")
    world.advance(3)
    assert client.data == ["m"]


def test_who_was_paused_looks_at_the_clock_before_it_lends() -> None:
    world = GatherWorld(processes=1, chains=1, exactly_once=True)
    client = Client(world, world.forwarder("a"), most=1, deadline_s=60)
    world.publish("read")
    world.publish("ahead")
    world.advance(1)
    assert client.data == ["read"]
    world.clock.advance(GRANT_S + 5)  # the process stood still
    client.consumer.max_messages = 10
    client.forwarder.subscribe.wake(SUB_NUMBER)
    world.settle()
    assert client.data == ["read"]
    world.advance(10)
    assert set(client.data) == {"read", "ahead"}


STEPS = ["publish", "publish", "publish", "break", "kill", "adopt", "assign", "cut", "alone", "heal", "leave", "join"]


class Storm:
    """Three forwarders and five sources while links break, processes die, sources move, the topic is spread anew."""

    def __init__(self, seed: int, kind: str) -> None:
        self.ordered, self.once = kind in ("ordered", "both"), kind in ("once", "both")
        self.world = GatherWorld(
            processes=3, chains=5, delay_s=0.2, seed=seed, ordered=self.ordered, exactly_once=self.once
        )
        self.clients = [
            Client(self.world, self.world.forwarder(name), deadline_s=(10, 60)[self.chance(2)])
            for name in ("a", "b", "c")
        ]
        self.sent: list[str] = []
        self.orphans: list[Chain] = []

    def chance(self, end: int) -> int:
        return self.world.random.randrange(0, end)

    def run(self) -> None:
        for _ in range(10 + self.chance(25)):
            self.step(STEPS[self.chance(len(STEPS))])
            if self.chance(2):
                self.work(0.3)
            self.world.advance((0.1, 0.5, 2.0, 6.0)[self.chance(4)])
        self.world.cut.clear()
        self.step("adopt")
        self.step("join")
        for _ in range(400):
            self.work(0.7)
            self.world.advance(0.5)
            if self.world.all_done:
                break
        self.check()

    def step(self, step: str) -> None:
        world = self.world
        if step == "publish":
            for _ in range(4):
                key = ("", "a", "b", "c")[self.chance(4)]
                if world.publish(f"{key}:{len(self.sent)}", key=key):
                    self.sent.append(f"{key}:{len(self.sent)}")
        elif step == "break":
            world.doors[self.chance(len(world.doors))].broken()
        elif step == "kill" and len(world.processes) > 1 and not self.orphans:
            self.orphans = world.kill(sorted(world.processes)[0])
            world.changed()
        elif step == "adopt" and self.orphans:
            world.adopt(self.orphans, sorted(world.processes)[-1])
            self.orphans = []
        elif step == "assign" and not self.orphans:
            world.assign([n for n in world.chains if self.chance(2)] or [1])
        elif step == "cut":
            world.cut.add(("abc"[self.chance(3)], sorted(world.processes)[0]))
        elif step == "alone":
            member = "abc"[self.chance(3)]
            world.cut.update((member, address) for address in world.processes)
        elif step == "heal":
            world.cut.clear()
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


@settings(max_examples=20, deadline=None, phases=(Phase.explicit, Phase.generate))
@given(seed=st.integers(0, 10**6), kind=st.sampled_from(["plain", "ordered", "once", "both"]))
def test_everything_is_delivered_once_confirmed_once_and_in_order_through_any_storm(seed: int, kind: str) -> None:
    Storm(seed, kind).run()
