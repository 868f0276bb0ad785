"""The machine of a bridge: what is acknowledged, when, and what is not published twice."""

from __future__ import annotations

import random

from syncpoint.programs.bridge.bridge_flow import Arrival, BridgeFlow


def started() -> BridgeFlow:
    flow = BridgeFlow(10, 1000)
    flow.connect(lambda _: False)
    return flow


def came(flow: BridgeFlow, packet: int, digest: bytes = b"", *, again: bool = False) -> Arrival:
    arrival = flow.arrive(packet, digest or b"%d" % packet, 1, again=again)
    assert arrival is not None
    return arrival


def test_acknowledgements_wait_for_their_publish_and_for_what_came_before() -> None:
    flow = started()
    first, second, third = (came(flow, packet) for packet in (1, 2, 3))
    assert flow.acknowledge() == []
    flow.finish(second)
    assert flow.acknowledge() == []
    flow.finish(first)
    assert flow.acknowledge() == [1, 2]
    assert flow.acknowledge() == []
    flow.finish(third)
    assert flow.acknowledge() == [3]
    assert (flow.messages, flow.bytes, flow.stored) == (0, 0, 3)


def test_nothing_is_acknowledged_without_a_connection() -> None:
    flow = started()
    arrival = came(flow, 1)
    flow.disconnect()
    flow.finish(arrival)
    assert flow.acknowledge() == []
    flow.connect(lambda _: True)
    assert flow.acknowledge() == [], "only what this connection has sent"
    assert flow.arrive(1, b"1", 1, again=True) is None, "stored meanwhile"
    assert flow.acknowledge() == [1]


def test_what_is_sent_again_joins_the_publish_that_is_under_way() -> None:
    flow = started()
    arrival = came(flow, 1)
    flow.disconnect()
    flow.connect(lambda _: True)
    assert flow.arrive(1, b"1", 1, again=True) is None
    assert (flow.messages, flow.joined) == (1, 1)
    flow.finish(arrival)
    assert flow.acknowledge() == [1]


def test_a_packet_id_is_joined_only_by_the_same_message_sent_again_in_the_same_session() -> None:
    for again, digest, kept in ((False, b"1", True), (True, b"other", True), (True, b"1", False)):
        flow = started()
        older = came(flow, 1)
        flow.disconnect()
        flow.connect(lambda _, kept=kept: kept)
        newer = came(flow, 1, digest, again=again)
        flow.finish(older)
        assert flow.acknowledge() == [], "the publish of another message"
        flow.finish(newer)
        assert flow.acknowledge() == [1]


def test_an_acknowledged_packet_id_is_another_message_even_if_it_looks_the_same() -> None:
    flow = started()
    flow.finish(came(flow, 1))
    assert flow.acknowledge() == [1]
    flow.disconnect()
    flow.connect(lambda _: True)
    came(flow, 1, again=True)


def test_after_a_failure_nothing_is_acknowledged_until_it_has_come_again() -> None:
    flow = started()
    first, second = came(flow, 1), came(flow, 2)
    flow.fail(first)
    flow.finish(second)
    assert flow.acknowledge() == []
    flow.disconnect()
    flow.connect(lambda _: True)
    repeated = came(flow, 1, again=True)
    assert flow.arrive(2, b"2", 1, again=True) is None
    flow.finish(repeated)
    assert flow.acknowledge() == [1, 2]


def test_room_ends_with_messages_or_bytes_but_one_message_is_always_taken() -> None:
    flow = BridgeFlow(2, 10)
    flow.connect(lambda _: False)
    assert not flow.full
    large = flow.arrive(1, b"", 1000, again=False)
    assert flow.full
    assert large is not None
    flow.finish(large)
    flow.arrive(None, b"", 1, again=False)
    assert not flow.full
    flow.arrive(None, b"", 1, again=False)
    assert flow.full
    assert flow.acknowledge() == [1], "QoS 0 is not acknowledged"


def test_out_of_order_each_is_acknowledged_as_it_is_done_and_what_comes_again_joins() -> None:
    flow = BridgeFlow(10, 1000, in_order=False)
    flow.connect(lambda _: True)
    first, second = came(flow, 1), came(flow, 2)
    assert flow.knows(1)
    assert flow.arrive(1, b"1", 1, again=True) is None
    flow.finish(second)
    assert flow.acknowledge() == [2]
    flow.finish(first)
    assert flow.acknowledge() == [1]
    assert (flow.messages, flow.joined, flow.knows(1)) == (0, 1, False)


def test_random_histories_acknowledge_only_what_is_stored_and_publish_once_until_then() -> None:
    for seed in range(200):
        chance = random.Random(seed)
        flow, stored, published = started(), set[int](), dict[int, int]()
        at_broker = list(range(1, 40))  # not acknowledged, in order; the packet id is the message
        sent, under_way, delivered = 0, list[tuple[int, Arrival]](), set[int]()
        for _ in range(2000):
            if not at_broker:
                break
            step = chance.random()
            if step < 0.05:
                flow.disconnect()
                flow.connect(lambda _: True)
                sent = 0
            elif step < 0.5 and sent < len(at_broker) and not flow.full:
                packet = at_broker[sent]
                arrival = flow.arrive(packet, b"%d" % packet, 1, again=packet in delivered)
                sent += 1
                delivered.add(packet)
                if arrival is not None:
                    published[packet] = published.get(packet, 0) + 1
                    under_way.append((packet, arrival))
            elif under_way:
                packet, arrival = under_way.pop(chance.randrange(len(under_way)))
                flow.finish(arrival)
                stored.add(packet)
            for packet in flow.acknowledge():
                assert packet == at_broker.pop(0), "in order"
                assert packet in stored
                sent -= 1
        assert not at_broker
        assert set(published.values()) == {1}
