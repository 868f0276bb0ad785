"""One message of a key at a time."""

from __future__ import annotations

import random

from syncpoint.programs.bridge.key_lanes import KeyLanes, QueuedWork


def offered(*lanes: str | None) -> KeyLanes[int]:
    made: KeyLanes[int] = KeyLanes()
    for number, lane in enumerate(lanes):
        made.offer(QueuedWork(number, lane, number))
    return made


def due(lanes: KeyLanes[int]) -> list[int]:
    return [one.value for one in lanes.due()]


def test_a_message_waits_for_the_one_before_it_in_its_lane_and_for_no_other() -> None:
    lanes = offered("a", "a", None, "b", None)
    assert (due(lanes), due(lanes), len(lanes)) == ([0, 2, 3, 4], [], 5)
    assert lanes.done(1) is None
    lanes.done(0)
    assert due(lanes) == [1]
    lanes.done(1)
    lanes.offer(QueuedWork(5, "a", 5))
    assert due(lanes) == [5]


def test_what_is_not_taken_is_handed_out_again_before_the_ones_after_it() -> None:
    lanes = offered("a", "a", None)
    assert due(lanes) == [0, 2]
    lanes.again(0)
    assert due(lanes) == []
    assert lanes.out(0) is None
    lanes.retry()
    assert due(lanes) == [0]
    lanes.done(0)
    assert due(lanes) == [1]


def test_after_a_lost_connection_all_that_was_out_and_is_not_kept_is_handed_out_first_in_its_order() -> None:
    lanes = offered("a", None, None)
    assert due(lanes) == [0, 1, 2]
    lanes.offer(QueuedWork(3, None, 3))
    lanes.reconnect(lambda value: value == 1)
    assert due(lanes) == [0, 2, 3]


def test_a_lane_that_is_given_up_is_forgotten_after_the_one_that_is_out() -> None:
    lanes = offered("a", "a", "a", "b")
    assert due(lanes) == [0, 3]
    assert [one.value for one in lanes.give_up("a")] == [1, 2]
    lanes.done(0)
    lanes.done(3)
    assert (due(lanes), len(lanes), lanes.give_up("a")) == ([], 0, [])


def test_random_histories_hand_out_all_in_the_order_of_lanes() -> None:
    for seed in range(100):
        chance = random.Random(seed)
        lanes = offered(*(chance.choice(["a", "b", "c", None]) for _ in range(60)))
        out: dict[int, str | None] = {}
        confirmed: dict[str | None, list[int]] = {}
        while len(lanes):
            for work in lanes.due():
                assert work.lane is None or work.lane not in out.values()
                out[work.value] = str(work.lane) if work.lane else None
            step = chance.random()
            if step < 0.1:
                lanes.reconnect(lambda _: False)
                out.clear()
            elif step < 0.3:
                lanes.retry()
            elif out:
                number = chance.choice(list(out))
                lane = out.pop(number)
                if step < 0.5:
                    lanes.again(number)
                else:
                    assert lanes.done(number) is not None
                    confirmed.setdefault(lane, []).append(number)
        assert sorted(one for lane in confirmed.values() for one in lane) == list(range(60))
        assert all(numbers == sorted(numbers) for lane, numbers in confirmed.items() if lane is not None)
