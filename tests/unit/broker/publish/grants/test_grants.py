"""Who delivers which source: stickiness, spreading, strict subscriptions, lost and silent forwarders, adopters."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncpoint.base.model.times import GRANT_S, RECONNECT_S
from syncpoint.broker.publish.grants.grants import Effect, Granted, Grants, Revoked
from tests.kit.examples import examples

pytestmark = pytest.mark.shows("grants")

SUB = 5


class Room:
    """Grants of one chain, a clock, and what forwarders were notified."""

    def __init__(self, *, ordered: bool = False, exactly_once: bool = False, rank: int = 0, **rest: Any):
        self.now = 100.0
        self.grants = Grants(rest.get("epoch", 1), self.now, rest.get("known"))
        self.reported: list[Effect] = []
        self.options = {"ordered": ordered, "exactly_once": exactly_once}
        self.grants.share(SUB, rank=rank, now=self.now, **self.options)

    def do(self, effects: list[Effect]) -> list[Effect]:
        self.reported += effects
        return effects

    def sources(self, *numbers: int, sealed: bool = False) -> None:
        self.do(self.grants.sources(SUB, [(number, sealed) for number in numbers], self.now))

    def attach(self, holder: int, *, wanted: bool = True, **claims: int) -> list[Effect]:
        held = {int(source[1:]): grant for source, grant in claims.items()}
        return self.do(self.grants.attach(SUB, holder, wanted, held, self.now))

    def wants(self, holder: int, wanted: bool) -> list[Effect]:
        return self.do(self.grants.set_demand(SUB, holder, wanted, self.now))

    def release(self, source: int) -> None:
        grant = next(e.grant for e in reversed(self.reported) if isinstance(e, Revoked) and e.source == source)
        self.do(self.grants.on_released(SUB, source, grant, self.now))

    def passes(self, seconds: float, *alive: int) -> list[Effect]:
        effects = []
        for _ in range(round(seconds * 10)):
            self.now += 0.1
            for holder in alive:
                self.grants.on_heartbeat(holder, self.now)
            effects += self.do(self.grants.tick(self.now))
        return effects

    def held(self) -> dict[int, int | None]:
        return {source: self.grants.holder(SUB, source) for source in self.grants.open_sources(SUB)}


def test_the_only_one_who_wants_gets_everything_and_keeps_it() -> None:
    room = Room()
    room.sources(1, 2, sealed=True)
    room.sources(3)
    assert room.attach(7, wanted=False) == []
    effects = room.wants(7, True)
    assert {effect.source for effect in effects} == {1, 2, 3}
    assert all(effect.grant > 1 << 32 for effect in effects)
    assert room.wants(7, False) == []
    assert room.held() == {1: 7, 2: 7, 3: 7}


def test_sealed_sources_spread_evenly_and_move_no_more_than_needed() -> None:
    room = Room()
    room.sources(*range(1, 10), sealed=True)
    for holder in (7, 8, 9):
        room.attach(holder)
    assert sorted(Counter(room.held().values()).values()) == [3, 3, 3]
    before = room.held()
    room.passes(3, 7, 8, 9)
    assert room.held() == before
    room.wants(9, False)
    after = room.held()
    assert 9 not in after.values()
    assert all(after[source] == holder for source, holder in before.items() if holder != 9)


def test_chains_with_one_growing_source_each_serve_all_who_want() -> None:
    holders: Counter[int | None] = Counter()
    for rank in range(6):
        room = Room(rank=rank)
        room.sources(rank + 1)
        for holder in (7, 8, 9):
            room.attach(holder)
        holders.update(room.held().values())
    assert set(holders.values()) == {2}


def test_a_lost_stream_keeps_its_grants_for_a_moment() -> None:
    room = Room()
    room.sources(1)
    room.attach(7)
    room.grants.on_disconnected(7, room.now)
    room.attach(8)
    assert room.passes(RECONNECT_S - 0.2, 8) == []
    room.attach(7)  # it is back
    room.passes(3, 7, 8)
    assert len([e for e in room.reported if isinstance(e, Granted)]) <= 2
    holder = room.held()[1]
    assert holder is not None
    room.grants.on_disconnected(holder, room.now)
    other = 15 - holder
    room.passes(RECONNECT_S + 0.2, other)
    assert room.held() == {1: other}


@pytest.mark.parametrize("options", [{"ordered": True}, {"exactly_once": True}])
def test_strict_subscriptions_move_as_a_whole_after_a_release(options: dict[str, bool]) -> None:
    room = Room(**options)
    room.sources(1, sealed=True)
    room.sources(2)
    room.attach(7)
    room.attach(8)
    assert set(room.held().values()) == {7}
    effects = room.wants(7, False)
    assert [type(effect) for effect in effects] == [Revoked, Revoked]
    assert room.grants.grant_of(SUB, 1, 7) == 0
    room.release(1)
    assert room.held()[2] == 7
    room.release(2)
    assert set(room.held().values()) == {8}


def test_a_strict_holder_that_does_not_let_go_loses_its_grants_after_a_while() -> None:
    room = Room(exactly_once=True)
    room.sources(1)
    room.attach(7)
    (granted,) = room.reported
    room.attach(8)
    room.wants(7, False)
    room.passes(GRANT_S - 0.2, 7, 8)
    assert room.held() == {1: 7}
    assert room.grants.may_acknowledge(SUB, 1, granted.grant)
    room.passes(0.5, 7, 8)
    assert room.held() == {1: 8}
    assert not room.grants.may_acknowledge(SUB, 1, granted.grant)


def test_a_silent_strict_holder_loses_its_grants_only_to_somebody_who_wants_them() -> None:
    room = Room(exactly_once=True)
    room.sources(1)
    room.attach(7)
    (granted,) = room.reported
    room.passes(20)
    assert room.grants.may_acknowledge(SUB, 1, granted.grant)
    assert room.held() == {1: 7}
    room.attach(8)
    assert room.held() == {1: 8}
    room.grants.on_disconnected(8, room.now)
    room.passes(RECONNECT_S + 1, 7)
    assert room.held() == {1: 8}
    room.passes(GRANT_S, 7)
    assert room.held() == {1: 7}


def test_a_restarted_process_is_another_holder() -> None:
    room = Room(exactly_once=True)
    room.sources(1)
    room.attach(7)
    room.attach(8)
    room.do(room.grants.on_ended(7, room.now))
    assert room.held() == {1: 8}


def test_an_adopter_waits_for_the_holder_of_an_exactly_once_source() -> None:
    room = Room(exactly_once=True, epoch=2, known={(SUB, 1): (77, 7)})
    room.sources(1)
    room.attach(8)
    room.passes(GRANT_S - 1, 8)
    assert room.held() == {1: 7}
    assert room.attach(7, s1=77) == []
    assert room.grants.grant_of(SUB, 1, 7) == 77
    room.passes(GRANT_S, 7, 8)
    assert room.held() == {1: 7}


@pytest.mark.parametrize("options", [{"ordered": True}, {"exactly_once": True}])
def test_of_a_strict_subscription_nothing_more_is_granted_while_somebody_else_may_deliver(
    options: dict[str, bool],
) -> None:
    """An owner before may have died while sources moved from one holder to another."""
    room = Room(epoch=2, known={(SUB, 1): (77, 7), (SUB, 2): (78, 8)}, **options)
    room.sources(1, 2, 3)
    room.attach(7, s1=77)
    room.passes(GRANT_S - 1, 7)
    assert room.held() == {1: 7, 2: 8, 3: None}
    room.passes(2, 7)
    assert room.held() == {1: 7, 2: 7, 3: 7}


def test_an_adopter_grants_anew_when_the_holder_does_not_come_back() -> None:
    room = Room(exactly_once=True, epoch=2, known={(SUB, 1): (77, 7)})
    room.sources(1)
    room.attach(8)
    room.passes(GRANT_S + 0.5, 8)
    assert room.held() == {1: 8}
    assert [type(effect) for effect in room.attach(7, s1=77)] == [Revoked]
    assert not room.grants.may_acknowledge(SUB, 1, 77)


def test_who_claims_an_older_grant_is_notified_that_it_is_over() -> None:
    room = Room(exactly_once=True, epoch=2, known={(SUB, 1): (77, 7)})
    room.sources(1)
    effects = room.attach(8, s1=76)
    assert effects == [Revoked(SUB, 1, 76, 8)]


def test_acknowledgements_count_before_anybody_has_attached_to_an_adopter() -> None:
    grants = Grants(2, 0.0, {(SUB, 1): (77, 7)})
    assert grants.may_acknowledge(SUB, 1, 77)
    assert not grants.may_acknowledge(SUB, 1, 76)


def test_the_last_holder_of_what_is_done_may_say_so_again() -> None:
    room = Room(exactly_once=True)
    room.sources(1)
    room.attach(7)
    (granted,) = room.reported
    room.grants.on_source_done(SUB, 1)
    assert room.grants.may_acknowledge(SUB, 1, granted.grant)
    assert not room.grants.may_acknowledge(SUB, 1, granted.grant + 1)
    room.sources(1)  # a seek made it live again
    assert room.held() == {1: 7}


events = st.lists(
    st.tuples(
        st.sampled_from(
            ["attach", "want", "want not", "beat", "lose", "end", "detach", "release", "source", "seal", "done", "time"]
        ),
        st.integers(1, 3),
        st.integers(1, 5),
    ),
    max_size=60,
)


@settings(max_examples=examples(150), deadline=None)
@given(st.booleans(), st.booleans(), events)
def test_whatever_happens_exactly_once_has_one_holder_at_a_time_and_nobody_starves(
    ordered: bool, exactly_once: bool, history: list[tuple[str, int, int]]
) -> None:
    room = Room(ordered=ordered, exactly_once=exactly_once)
    received: dict[int, float] = {}
    holder_of: dict[int, tuple[int, int]] = {}
    revoked_at: dict[int, float] = {}
    free: set[int] = set()  # sources let go by their holder
    highest = 0

    def judge(effects: list[Effect]) -> None:
        nonlocal highest
        for effect in effects:
            if isinstance(effect, Revoked):
                if holder_of.get(effect.source) == (effect.holder, effect.grant):
                    revoked_at.setdefault(effect.source, room.now)
                continue
            assert effect.grant > highest
            highest = effect.grant
            before = holder_of.get(effect.source)
            if (exactly_once or ordered) and before is not None and effect.source not in free:
                silent = room.now - received.get(before[0], -1e9) > GRANT_S
                overdue = room.now - revoked_at.get(effect.source, 1e9) > GRANT_S
                assert silent or overdue
            holder_of[effect.source] = (effect.holder, effect.grant)
            revoked_at.pop(effect.source, None)
            free.discard(effect.source)

    for what, holder, source in history:
        mine = {number for number, (who, _) in holder_of.items() if who == holder}
        if what == "attach":
            received[holder] = room.now
            judge(room.attach(holder))
        elif what in ("want", "want not"):
            judge(room.wants(holder, what == "want"))
        elif what == "beat":
            if holder in received:
                received[holder] = room.now
                room.grants.on_heartbeat(holder, room.now)
        elif what == "lose":
            room.grants.on_disconnected(holder, room.now)
        elif what == "end":
            free |= mine
            judge(room.do(room.grants.on_ended(holder, room.now)))
        elif what == "detach":
            if holder in room.grants.attached(SUB):
                free |= mine
            judge(room.do(room.grants.detach(SUB, holder, room.now)))
        elif what == "release":
            if source in revoked_at:
                free.add(source)
                judge(room.do(room.grants.on_released(SUB, source, holder_of[source][1], room.now)))
        elif what in ("source", "seal"):
            judge(room.do(room.grants.sources(SUB, [(source, what == "seal")], room.now)))
        elif what == "done":
            free.add(source)
            room.grants.on_source_done(SUB, source)
            room.grants.on_source_gone(SUB, source)
            holder_of.pop(source, None)
            revoked_at.pop(source, None)
        else:
            judge(room.passes(source * 0.7))
    # In the end one forwarder wants, and lives: it has everything.
    for other in (1, 2):
        judge(room.wants(other, False))
    received[3] = room.now
    judge(room.attach(3))
    for _ in range(60):
        judge(room.passes(0.4, 3))
        received[3] = room.now
    assert set(room.held().values()) <= {3}
