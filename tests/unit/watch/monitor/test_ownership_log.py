"""Changes of owners: each once, in order, bounded, and of every chain always the newest."""

from __future__ import annotations

import sqlite3

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncpoint.watch.monitor import ownership_log
from syncpoint.watch.monitor.ownership_log import ChainHolder, OwnershipLog

DAY_S = 86_400.0
steps = st.tuples(st.integers(0, 3), st.sampled_from(["", "a", "b"]), st.booleans())


def opened() -> OwnershipLog:
    return OwnershipLog(sqlite3.connect(":memory:", isolation_level=None))


@given(st.lists(steps, max_size=60), st.integers(0, 60))
def test_what_is_kept_says_who_held_each_chain_at_any_time(changes: list[tuple[int, str, bool]], begin: int) -> None:
    log, epochs, truth = opened(), dict.fromkeys(range(4), 0), []
    for at, (chain, owner, again) in enumerate(changes):
        epochs[chain] += owner != ""
        holder = ChainHolder(float(at), chain, epochs[chain] if owner else 0, owner)
        log.note([holder, holder] if again else [holder])  # said twice, known once
        truth.append((at, chain, owner))
    shown = log.since(float(begin))
    assert [one.at_s for one in shown] == sorted(one.at_s for one in shown)
    for at in range(begin, len(changes)):
        for chain in range(4):
            expected = [owner for when, of, owner in truth if of == chain and when <= at][-1:]
            found = [one.owner for one in shown if one.chain == chain and one.at_s <= at][-1:]
            assert found == expected
    assert all(one.epoch == epochs[chain] for chain, one in log.last().items())


def test_it_is_bounded_and_the_newest_of_each_chain_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ownership_log, "CHANGES_MAX", 10)
    log = opened()
    log.note([ChainHolder(0.0, 7, 1, "quiet")])
    for epoch in range(1, 50):
        log.note([ChainHolder(float(epoch), 1, epoch, f"p{epoch}")])
    assert [one.chain for one in log.since(0.0)].count(1) == 10
    assert log.last()[7].owner == "quiet"
    log.note([ChainHolder(15 * DAY_S, 1, 50, "late", True)])
    assert [(one.chain, one.owner) for one in log.since(0.0)] == [(7, "quiet"), (1, "late")]
    assert log.last()[1].late
    assert log.kept_since_s == 0.0
