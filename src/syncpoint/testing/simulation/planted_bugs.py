"""Bugs planted into shipped modules, one at a time, to see that simulation catches them.

Each is a patch that takes one rule of the protocol out, and the simulations in which that should show: a shape and the
faults that the rule is about. `tests/simulation` looks for the first seed that catches it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from syncpoint.testing.simulation import planted_again as again
from syncpoint.testing.simulation import planted_cluster_pipelines as on_clusters
from syncpoint.testing.simulation import planted_delivery as delivering
from syncpoint.testing.simulation import planted_pipelines as pipelines
from syncpoint.testing.simulation import planted_protocol as protocol
from syncpoint.testing.simulation import planted_pushes as pushes
from syncpoint.testing.simulation import planted_rules as rules
from syncpoint.testing.simulation import planted_storage as storage
from syncpoint.testing.simulation.chain_runs import run_chains
from syncpoint.testing.simulation.runner import run_one
from syncpoint.testing.simulation.sim_runs import RunResult
from syncpoint.testing.simulation.simulated_jobs import PipelineShape
from syncpoint.testing.simulation.topology import Topology

Patch = Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True)
class Planted:
    """One bug, and where it should show."""

    patch: Patch
    shape: Topology | PipelineShape | None
    kinds: tuple[str, ...]
    beyond: bool = False  # more is destroyed than can be made good: the right thing is to refuse
    seed: int | None = (
        None  # the first one that notices it, as `tools/sim.py --planted` finds it; None: none of 200 did
    )
    run: Callable[..., RunResult] = run_chains

    def life(self, seed: int) -> RunResult:
        """One seed of its simulation."""
        return self.run(seed, shape=self.shape, kinds=self.kinds, beyond=self.beyond)


THREE = Topology(clusters=3, disks=1)
RACKS = Topology(clusters=3, disks=1, racks=True)
ROLLING = Topology(clusters=1, disks=1, entries=6)
SINGLE = Topology(clusters=1, disks=1)
SMALL = Topology(clusters=1, disks=1, subscribers=2)
EMPTYING = Topology(clusters=1, disks=1, emptying=True)
LASTING = Topology(clusters=1, disks=1, subscribers=2, lasting=True, strict=True)
STRICT_TWO = Topology(clusters=1, disks=1, chains=2, strict=True)
ABSENT = Topology(clusters=1, disks=1, subscribers=2, absent=True)
SEALING = Topology(clusters=1, disks=1, sealing=True)
SEEKING = Topology(clusters=1, disks=1, subscribers=2, seeking=True)
CRAMPED = Topology(clusters=1, disks=1, emptying=True, heavy=True, room=600_000)
STRICT = Topology(clusters=1, disks=1, subscribers=2, strict=True)
SPREAD = Topology(clusters=3, disks=3, spread=True)
PLANTED: dict[str, Planted] = {
    "no epoch check": Planted(protocol.no_epoch_check, THREE, ("takeover", "hang", "crash"), seed=4),
    "recovery that does not fence": Planted(protocol.recovery_does_not_fence, THREE, ("takeover", "crash"), seed=0),
    "ack before quorum": Planted(
        protocol.ack_before_quorum,
        THREE,
        ("crash", "power cut", "partition from disks", "takeover", "disk slow"),
        seed=10,
    ),
    "truncate at any bad checksum": Planted(
        protocol.truncate_at_any_bad_checksum,
        THREE,
        ("crash", "disk rots", "takeover", "disk slow", "power cut"),
        seed=10,
    ),
    "rule 2": Planted(protocol.rule_2, SPREAD, ("split of disks",), seed=9),
    "rule 3": Planted(protocol.rule_3, THREE, ("replaced at the worst time",), beyond=True, seed=0),
    "rule 4": Planted(protocol.rule_4, SINGLE, ("crash", "power cut", "takeover", "power cut in a command"), seed=14),
    "rule 8": Planted(protocol.rule_8, Topology(clusters=3, disks=1, heavy=True), ("disk hung", "disk slow"), seed=0),
    "rule 12": Planted(protocol.rule_12, SINGLE, ("crash", "takeover", "close"), seed=3),
    "rule 16": Planted(protocol.rule_16, SINGLE, ("crash", "takeover"), seed=7),
    "rule 18": Planted(protocol.rule_18, STRICT_TWO, ("metadata outage",), seed=7),
    "a source ends early": Planted(protocol.a_source_ends_early, SINGLE, ("takeover", "disk slow"), seed=3),
    "nobody goes on": Planted(protocol.nobody_goes_on, SINGLE, ("close", "takeover"), seed=0),
    "an epoch begins unknowing": Planted(
        protocol.an_epoch_begins_unknowing, replace(LASTING, chains=2), ("subscribe forwarder parted",), seed=36
    ),
    "a late hello ends the living": Planted(
        again.a_late_hello_ends_the_living,
        SMALL,
        ("subscribe forwarder parted", "crash of a subscribe forwarder"),
        seed=9,
    ),
    "late words count": Planted(
        again.late_words_count, SMALL, ("subscribe forwarder parted", "hang of a subscribe forwarder"), seed=21
    ),
    "what is passed over is taken for acknowledged": Planted(
        again.what_is_passed_over_is_taken_for_acknowledged,
        SMALL,
        ("disk server hung", "partition from disks"),
        seed=27,
    ),
    "strict delivery goes on without ownership": Planted(
        again.strict_delivery_goes_on_without_ownership, LASTING, ("island left behind",), seed=3
    ),
    "an acknowledgement fails by our own word": Planted(
        again.an_acknowledgement_fails_by_our_own_word, LASTING, ("subscribe forwarder falls silent",), seed=1
    ),
    "one clock says what is too old": Planted(
        again.one_clock_says_what_is_too_old, SMALL, ("clock jump", "takeover"), seed=1
    ),
    "a log begins on too few disks": Planted(
        again.a_log_begins_on_too_few_disks, THREE, ("disks lost in an opening",), seed=17
    ),
    "a lock stays with a lost farewell": Planted(
        again.a_lock_stays_with_a_lost_farewell,
        THREE,
        ("farewells lost", "disk server hung", "disk fails"),
        seed=11,
    ),
    "a late removal removes the next registration": Planted(
        again.a_late_removal_removes_the_next_registration, EMPTYING, ("metadata in doubt", "takeover"), seed=86
    ),
    "a seek while nothing is stored is left aside": Planted(
        rules.a_seek_while_nothing_is_stored_is_left_aside, EMPTYING, ("close", "takeover"), seed=3
    ),
    "a start counts in every generation": Planted(
        rules.a_start_counts_in_every_generation, SINGLE, ("crash", "takeover", "close"), seed=17
    ),
    "a seek is seen before it is persisted": Planted(
        rules.a_seek_is_seen_before_it_is_persisted, SEEKING, ("dies behind its disks",), seed=49
    ),
    "a failed look deletes": Planted(
        rules.a_failed_look_deletes, ROLLING, ("accident", "hang of a subscribe forwarder"), seed=4
    ),
    "forgotten sources come back": Planted(
        rules.forgotten_sources_come_back, EMPTYING, ("crash", "takeover", "maintainers starved"), seed=3
    ),
    "segments are listed that no disk has": Planted(
        rules.segments_are_listed_that_no_disk_has, ROLLING, ("close", "back when given up"), seed=42
    ),
    "holes are sealed": Planted(storage.holes_are_sealed, SINGLE, ("power lost in an opening",), seed=5),
    "rule 7": Planted(rules.rule_7, ROLLING, ("crash", "disk slow", "power cut"), seed=0),
    "rule 9": Planted(storage.rule_9, RACKS, ("disk slow", "disk server hung", "takeover"), seed=6),
    "rule 10": Planted(storage.rule_10, CRAMPED, ("crash", "takeover", "close"), seed=10),
    "rule 13": Planted(storage.rule_13, SINGLE, ("takeover", "disk server killed", "hang"), seed=2),
    "rule 14": Planted(storage.rule_14, THREE, ("replaced at the worst time",), beyond=True, seed=0),
    "rule 11": Planted(rules.rule_11, SINGLE, ("takeover", "crash"), seed=0),
    "rule 17": Planted(
        rules.rule_17, SMALL, ("subscribe forwarder parted", "hang of a subscribe forwarder", "takeover"), seed=3
    ),
    "rule 19": Planted(rules.rule_19, ABSENT, ("takeover",), seed=1),
    "rule 22": Planted(delivering.rule_22, LASTING, ("subscribe forwarder parted",), seed=11),
    "an exception ends the clock": Planted(
        delivering.an_exception_ends_the_clock, SINGLE, ("steps of a subscribe forwarder fail",), seed=0
    ),
    "a batch goes by the name of its topic": Planted(
        delivering.a_batch_goes_by_the_name_of_its_topic, SEALING, ("disk slow", "hang", "takeover"), seed=0
    ),
    "a reader undoes a seek": Planted(
        pipelines.a_reader_undoes_a_seek,
        pipelines.ALONE_KEPT,
        ("crash", "disk slow"),
        seed=1,
        run=pipelines.run,
    ),
    "older runs are let in": Planted(
        pipelines.older_runs_are_let_in,
        pipelines.ONE_PLAIN,
        ("connections broken", "crash"),
        seed=4,
        run=pipelines.run,
    ),
    "a commit is answered before it is persisted": Planted(
        pipelines.answered_before_persisted,
        pipelines.ONE_PLAIN,
        ("crash in a commit", "disk slow"),
        seed=5,
        run=pipelines.run,
    ),
    "staged rows are seen early": Planted(
        pipelines.staged_rows_are_seen_early, pipelines.ONE_PLAIN, ("crash",), seed=0, run=pipelines.run
    ),
    "a link counts twice after a restart": Planted(
        pipelines.a_link_counts_twice_after_a_restart,
        pipelines.ONE_LINK,
        ("crash",),
        seed=0,
        run=pipelines.run,
    ),
    "cursors hold nothing": Planted(
        pipelines.cursors_hold_nothing, pipelines.ONE_PLAIN, ("crash", "stop"), seed=1, run=pipelines.run
    ),
    "an epoch is applied twice": Planted(
        pipelines.an_epoch_is_applied_twice,
        pipelines.ONE_PLAIN,
        ("crash in a commit", "disk slow"),
        seed=9,
        run=pipelines.run,
    ),
    "gaps are not refused": Planted(
        pipelines.gaps_are_not_refused,
        pipelines.ONE_LINK,
        ("connections broken", "crash"),
        seed=142,
        run=pipelines.run,
    ),
    "what was read ahead is of any source": Planted(
        pipelines.what_was_read_ahead_is_of_any_source,
        pipelines.ONE_PLAIN,
        ("crash in a commit", "stop"),
        seed=43,
        run=pipelines.run,
    ),
    "a failed log has nothing to read": Planted(
        pipelines.a_failed_log_has_nothing_to_read,
        pipelines.ONE_PLAIN,
        ("disk fails",),
        seed=20,
        run=pipelines.run,
    ),
    "a lost commit is reported as repeated": Planted(
        pipelines.a_lost_commit_is_answered_as_repeated,
        pipelines.LARGE,
        ("disk fails in a commit",),
        seed=1,
        run=pipelines.run,
    ),
    "unreadable means lost": Planted(
        pipelines.unreadable_means_lost,
        pipelines.ONE_PLAIN,
        ("disk fails", "crash in a commit"),
        seed=6,
        run=pipelines.run,
    ),
    "queries have no home": Planted(
        on_clusters.queries_have_no_home,
        pipelines.ONE_PLAIN,
        ("owner killed in a commit", "crash"),
        seed=11,
        run=on_clusters.run,
    ),
    "a chain that is away is left out": Planted(
        on_clusters.a_chain_that_is_away_is_left_out,
        pipelines.ONE_PLAIN,
        ("crash", "hang", "partition"),
        seed=0,
        run=on_clusters.run,
    ),
    "decisions are not pinned": Planted(
        on_clusters.decisions_are_not_pinned, pipelines.ONE_PLAIN, ("crash",), seed=1, run=on_clusters.run
    ),
    "cursors begin late": Planted(
        on_clusters.cursors_begin_late, pipelines.ONE_PLAIN, ("crash", "restart"), seed=33, run=on_clusters.run
    ),
    "an epoch says what was read": Planted(
        on_clusters.an_epoch_says_what_was_read,
        pipelines.ONE_PLAIN,
        ("crash", "restart", "metadata outage"),
        seed=0,
        run=on_clusters.run,
    ),
    "every push counts": Planted(pushes.every_push_counts, None, (), seed=0, run=pushes.run),
}


def caught(name: str, seed: int) -> str | None:
    """How a planted bug is noticed in a seed; None when it is not."""
    planted = PLANTED[name]
    with planted.patch():
        result = run_one(seed, planted.life)
    return result.violations[0] if result.violations else None


def is_good_without(name: str, seed: int) -> list[str]:
    """What is wrong with a seed in which nothing is planted."""
    return PLANTED[name].life(seed).violations


def first_caught(name: str, seeds: int, hint: int | None = None) -> tuple[int, str] | None:
    """The first of so many seeds in which a planted bug is noticed, and how; None when it is not. `hint`: checked
    before all others.
    """
    for seed in (*(() if hint is None else (hint,)), *range(seeds)):
        how = caught(name, seed)
        if how is not None and not is_good_without(name, seed):
            return seed, how
    return None
