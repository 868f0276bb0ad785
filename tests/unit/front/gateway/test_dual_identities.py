"""What is remembered by identity: bounded, forgotten in time where publishers chose it, and acknowledged by copies."""

from __future__ import annotations

import pytest

from syncpoint.front.gateway import dual_identities
from syncpoint.front.gateway.dual_identities import NEAR_S, AckBook, KnownIdentities

TAGS = ("eu.", "us.")


def test_the_oldest_are_forgotten() -> None:
    known = KnownIdentities(2)
    for number in range(3):
        known.add(f"gw-{number}", 0.0)
    known.add("gw-1", 0.0)
    assert [known.has(f"gw-{number}", 1e9) for number in range(3)] == [False, True, True]
    known.clear()
    assert len(known) == 0


def test_an_identity_of_a_publisher_may_be_of_another_message_later() -> None:
    known = KnownIdentities(10)
    known.add("order-7", 100.0)
    for published_s in (100.0 - NEAR_S + 1, 100.0 + NEAR_S - 1):  # the copy, by the clock of the other site
        assert known.has("order-7", published_s)
    assert not known.has("order-7", 100.0 + NEAR_S)  # published again, it may be another message


def test_what_was_acknowledged_is_not_delivered_again() -> None:
    book = AckBook(TAGS)
    assert book.deliver("eu.", "1", "gw-a", 0.0)
    assert book.deliver("eu.", "2", "", 0.0)  # without an identity nothing is known of it
    assert book.knows(["eu.1"])
    assert not book.knows(["eu.1", "eu.2"])
    assert book.acknowledged(["eu.1", "eu.2", "eu.9"]) == []
    assert not book.deliver("us.", "1", "gw-a", 2.0)
    assert book.dropped == 1
    book.deliver("eu.", "3", "gw-c", 0.0)
    book.acknowledged(["eu.3"])
    book.forget()  # a seek
    assert book.deliver("us.", "3", "gw-c", 3.0)


def test_what_comes_again_from_a_site_that_knows_is_a_replay() -> None:
    """The seek may have been made elsewhere: at another gateway, or at the site itself."""
    book = AckBook(TAGS)
    book.deliver("eu.", "1", "gw-a", 0.0)
    book.acknowledged(["eu.1"])
    assert book.deliver("eu.", "2", "gw-a", 0.0)
    assert not book.hold("us.", "gw-a", "copy", 0.0)  # the copy of what was acknowledged, which us did not know
    book.answered("us.", ["copy"], confirmed=True)
    assert book.hold("us.", "gw-a", "copy", 0.0)  # it does now
    assert book.acknowledged(["eu.2"]) == ["copy"]
    assert book.dropped == 0
    assert not book.deliver("eu.", "3", "gw-a", 50.0)  # stored anew, at a site that lost its disks
    book.answered("eu.", ["3"], confirmed=True)
    assert book.deliver("eu.", "3", "gw-a", 50.0)


def test_a_copy_that_is_given_back_while_it_is_acknowledged_is_left_out_once() -> None:
    """The home was lost, its copies go back to the other site, and an acknowledgement for the lost one comes."""
    book = AckBook(TAGS)
    book.deliver("eu.", "1", "gw-a", 0.0)
    assert book.hold("us.", "gw-a", "copy", 0.0)
    assert book.acknowledged(["eu.1"], gone=True) == ["copy"]
    book.answered("us.", ["copy"], confirmed=True)  # it may come once more, lent before that was known
    assert not book.deliver("us.", "2", "gw-a", 0.0)
    book.answered("us.", ["2"], confirmed=True)
    assert book.deliver("us.", "3", "gw-a", 0.0)  # after a seek


def test_what_a_site_did_not_confirm_is_left_out_when_it_comes_again() -> None:
    """The other site was away, or had given up the lease, when the copy was to be acknowledged."""
    book = AckBook(TAGS)
    book.deliver("eu.", "1", "gw-a", 0.0)
    assert book.hold("us.", "gw-a", "copy", 0.0)
    assert book.acknowledged(["eu.1"]) == ["copy"]
    book.answered("us.", ["copy"], confirmed=False)
    assert not book.hold("us.", "gw-a", "copy-2", 0.0)
    book.answered("us.", ["copy-2"], confirmed=False)
    assert not book.deliver("us.", "3", "gw-a", 0.0)
    book.answered("us.", ["3"], confirmed=True)
    assert book.deliver("us.", "4", "gw-a", 0.0)  # after a seek
    assert book.leaving == {}


def test_a_site_that_was_gone_leaves_out_once_what_was_acknowledged_meanwhile() -> None:
    book = AckBook(TAGS)
    book.deliver("eu.", "1", "gw-a", 0.0)
    book.acknowledged(["eu.1"], gone=True)
    assert not book.deliver("us.", "1", "gw-a", 0.0)
    assert not book.deliver("eu.", "2", "gw-a", 0.0)
    book.answered("eu.", ["2"], confirmed=True)
    assert book.dropped == 2
    assert book.deliver("eu.", "3", "gw-a", 0.0)


def test_a_copy_is_acknowledged_with_its_original_whichever_comes_first() -> None:
    book = AckBook(TAGS)
    book.deliver("eu.", "1", "gw-a", 0.0)
    book.deliver("eu.", "2", "gw-b", 0.0)
    assert book.hold("us.", "gw-a", "copy-a", 0.0)
    assert book.acknowledged(["eu.1", "eu.2"]) == ["copy-a"]
    assert not book.hold("us.", "gw-b", "copy-b", 2.0)
    assert book.hold("us.", "gw-c", "copy-c", 2.0)
    assert book.hold("us.", "", "copy-d", 2.0)
    assert book.release() == ["copy-c", "copy-d"]
    assert book.held == {}


def test_what_is_lent_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dual_identities, "LENT_MAX", 2)
    book = AckBook(TAGS)
    for number in range(3):
        book.deliver("eu.", f"{number}", f"gw-{number}", 0.0)
    assert not book.knows(["eu.0"])
    assert book.knows(["eu.1", "eu.2"])


def test_a_second_message_of_a_publishers_identity_is_not_taken_for_the_first() -> None:
    book = AckBook(TAGS)
    book.deliver("eu.", "1", "order-7", 100.0)
    assert book.hold("us.", "order-7", "copy-1", 101.0)
    assert book.hold("us.", "order-7", "copy-2", 130.0)
    assert book.acknowledged(["eu.1"]) == ["copy-1"]
    assert book.copies() == ["copy-2"]
    book.deliver("eu.", "3", "order-9", 100.0)
    book.acknowledged(["eu.3"])
    assert not book.deliver("us.", "1", "order-9", 101.0)
    assert book.deliver("us.", "2", "order-9", 130.0)
    late = AckBook(TAGS)  # its first copy is gone: what is held is the second one's
    late.deliver("eu.", "1", "order-7", 100.0)
    assert late.hold("us.", "order-7", "copy-2", 130.0)
    assert late.acknowledged(["eu.1"]) == []


def test_a_copy_that_a_peer_reported_is_left_out_until_its_site_confirms_it() -> None:
    book = AckBook(TAGS)
    assert book.hold("us.", "gw-a", "copy", 0.0)
    assert book.reported([("gw-a", 0.0, [("eu.", 0.0)])]) == ["copy"]
    book.answered("us.", ["copy"], confirmed=False)
    assert not book.hold("us.", "gw-a", "copy-2", 0.0)
    book.answered("us.", ["copy-2"], confirmed=True)
    assert book.hold("us.", "gw-a", "copy-3", 0.0)  # after a seek
