"""What proves that the home has done with a message: its own report, twice, and its letters at the other site."""

from __future__ import annotations

from typing import Any

import pytest

from syncpoint.base.model.identity import UNIVERSE_MIN, format_message_id
from syncpoint.front.gateway import home_proof
from syncpoint.front.gateway.dual_identities import AckBook
from syncpoint.front.gateway.home_proof import HomeProof
from syncpoint.wire.protobuf.messages import admin

EU, US = "eu.", "us."


def at(offset: int, source: int = 1, universe: int = UNIVERSE_MIN) -> str:
    return format_message_id(universe, source, offset)


def state(first_unacked: int, *acked: tuple[int, int], **fields: Any) -> admin.SubscriptionState:
    """One source with offsets 10 to 99."""
    era = {name: fields.pop(name) for name in ("incarnation", "generation", "unknown") if name in fields}
    ranges = [admin.OffsetRange(begin=begin, end=end) for begin, end in acked]
    source = {"source": 1, "universe": UNIVERSE_MIN, "start_offset": 10, "next_offset": 100, "copies": 1, **fields}
    return admin.SubscriptionState(
        sources=[admin.AckState(first_unacked_offset=first_unacked, acked=ranges, **source)], **era
    )


def proven(proof: HomeProof, *states: admin.SubscriptionState) -> list[str]:
    found: list[tuple[str, float]] = []
    for one in states:
        found = proof.looked(EU, one, None)
    return sorted(identity for identity, _ in found)


def delivered(letters: admin.SubscriptionState | None = None) -> HomeProof:
    """Offsets 20, 30 and 40, after a first look."""
    proof = HomeProof()
    proof.looked(EU, state(10, generation=9), letters)
    for offset in (20, 30, 40):
        proof.delivered(EU, f"gw-{offset}", at(offset), 1.0)
    return proof


def test_a_message_is_done_with_once_the_home_reported_it_twice() -> None:
    assert proven(delivered(), state(25)) == []
    assert proven(delivered(), state(25), state(25)) == ["gw-20"]
    assert proven(delivered(), state(10, (40, 41)), state(10, (40, 41), (20, 31))) == ["gw-40"]
    assert proven(delivered(), state(10), state(50)) == []
    assert proven(delivered(), *[state(10, (40, 41), copies=2)] * 2) == []  # of one of several copies
    assert proven(delivered(), *[state(25, (40, 41), copies=2)] * 2) == ["gw-20"]


@pytest.mark.parametrize(
    "other",
    [
        {"universe": UNIVERSE_MIN + 1},  # other disks
        {"universe": 0},  # a server that does not tell
        {"source": 2},
        {"start_offset": 60},  # the subscription was made anew
        {"next_offset": 20},
    ],
)
def test_what_the_home_reports_of_other_messages_proves_nothing(other: dict[str, int]) -> None:
    assert proven(delivered(), *[state(50, (10, 90), **other)] * 2) == []


def test_a_seek_begins_anew() -> None:
    assert proven(delivered(), state(50, generation=1), state(50, generation=2)) == []
    assert proven(delivered(), state(50, incarnation=1), state(50, incarnation=2)) == []
    proof = delivered()
    proven(proof, state(50))
    proof.clear()
    assert len(proof) == 0
    proof.delivered(EU, "gw-20", at(20), 1.0)
    assert proven(proof, state(50)) == []


def test_no_proof_rests_on_ids_that_no_server_of_ours_gives() -> None:
    proof = delivered()
    proof.clear()
    proof.delivered(EU, "gw-1", "projects/other/7", 1.0)
    assert proven(proof, state(50), state(50)) == []


def test_letters_are_at_the_other_site_first() -> None:
    def looked(*letters: admin.SubscriptionState) -> list[str]:
        proof, found = delivered(letters[0]), list[tuple[str, float]]()
        for one in letters:
            found = proof.looked(EU, state(25), one)
        return [identity for identity, _ in found]

    assert looked(state(60), state(60)) == []  # letters up to 99 are not copied
    assert looked(state(60), state(99)) == []
    assert looked(state(60), state(100)) == ["gw-20"]
    assert looked(state(60), state(100, next_offset=300)) == ["gw-20"]  # newer ones are of other messages
    assert looked(state(60, unknown=["a chain"]), state(100)) == []
    assert looked(state(100, incarnation=1), state(100, incarnation=2), state(100, incarnation=2)) == []
    assert looked(state(60), state(100, source=2)) == []


def test_a_letter_may_be_older_than_what_copies_letters() -> None:
    proof = HomeProof()
    proof.delivered(EU, "gw-20", at(20), 1.0)
    letters = state(100)
    for _ in range(3):
        assert proof.looked(EU, state(25), letters) == []
    proof.delivered(EU, "gw-20", at(20), 1.0)
    assert proof.looked(EU, state(25), letters) == []
    assert proof.looked(EU, state(25), letters) == [("gw-20", 1.0)]
    proof = HomeProof()
    proof.delivered(EU, "gw-20", at(20), 1.0)
    letters = state(100, start_offset=0)  # it misses none
    assert proof.looked(EU, state(25), letters) == []
    assert proof.looked(EU, state(25), letters) == [("gw-20", 1.0)]


def test_each_site_is_asked_for_what_it_delivered() -> None:
    """The message was given up at one site, delivered at the other one, which was lost, and is held there again."""
    proof = delivered()
    proof.delivered(US, "gw-20", at(70), 2.0)
    assert proven(proof, state(25), state(25)) == ["gw-20"]
    assert proof.looked(US, state(90), None) == []
    assert proof.looked(EU, state(90), None) == []  # the other one reported before
    proof.done_with("gw-20")
    assert len(proof) == 2


def test_nobody_is_asked_for_what_is_under_way_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    proof = HomeProof()
    assert proof.to_ask(EU)  # how its letters are copied
    proof.looked(EU, state(10), None)
    assert not proof.to_ask(EU)
    proof.delivered(EU, "gw-1", at(20), 1.0)
    assert not proof.to_ask(EU)
    proof.done_with("gw-1")
    proof.delivered(EU, "gw-2", at(21), 1.0)
    assert not proof.to_ask(EU)
    assert proof.to_ask(EU)
    monkeypatch.setattr(home_proof, "ORIGINS_MAX", 2)
    for number in range(5):
        proof.delivered(EU, f"gw-{number}", at(20 + number), 1.0)
    assert len(proof) == 2


def test_what_is_proven_counts_as_acknowledged() -> None:
    book = AckBook((EU, US))
    book.news = []
    assert book.deliver(EU, "1", "gw-a", 1.0, at(20))
    assert book.hold(US, "gw-a", "copy", 2.0)
    assert book.completed(EU, [("gw-a", 1.0)]) == ["copy"]
    assert (len(book.held), len(book.proof)) == (0, 0)
    assert [one for one, _, _ in book.take_news()] == ["gw-a"]
    book.answered(US, ["copy"], confirmed=False)
    assert not book.hold(US, "gw-a", "copy2", 2.0)  # it comes again, and is acknowledged again
    assert book.deliver(EU, "2", "gw-a", 1.0, at(20))  # a seek at the home


def test_an_acknowledgement_ends_the_search_for_a_proof() -> None:
    book = AckBook((EU, US))
    for number in range(3):
        book.deliver(EU, f"{number}", f"gw-{number}", 1.0, at(20 + number))
    book.acknowledged([f"{EU}0"])
    book.reported([("gw-1", 1.0, ())])
    assert len(book.proof) == 1
    book.forget()
    assert len(book.proof) == 0
