"""Families of logs and their disks, for each chain that is open in a process: on a node, chain 0.

Place: where publishes become durable. A chain that is opened again counts from zero.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from syncpoint.metrics.family import Family, Kind, QuickCollector, Samples
from syncpoint.publish.forwarder import PublishForwarder
from syncpoint.storage.disk.store_status import DiskStatus, StoreStatus

_C, _G, _H = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM
_DISK: Final = ("chain", "disk")
_NODE: Final = "tests/unit/metrics/test_node_families.py"
_CASES: Final = "tests/unit/metrics/test_moves.py"
STATES: Final = ("ok", "damaged", "healing", "away", "failed")

_LOG: Final = (
    ("counter", _G, "", "The number of the log that is written.", f"{_NODE}::storage"),
    ("appended_position", _G, "", "Entries that the log was given.", f"{_CASES}::publish"),
    ("persisted_position", _G, "", "Entries of it that are persisted.", f"{_CASES}::publish"),
    ("waiting_entries", _G, "", "Entries that are not persisted yet.", f"{_CASES}::slow_disks"),
    ("under_replicated_entries", _G, "", "Entries that fewer than all disks hold.", f"{_CASES}::slow_disks"),
    ("written_bytes_total", _C, "bytes", "Bytes that the log was given.", f"{_CASES}::publish"),
    ("segments", _G, "", "Segments of this log and of earlier ones.", f"{_NODE}::storage"),
    ("sources", _G, "", "Sources of which messages are stored.", f"{_NODE}::storage"),
    ("cached_bytes", _G, "bytes", "Of the newest messages in memory (the tail cache).", f"{_NODE}::storage"),
    ("room_bytes", _G, "bytes", "What enough disks can still take, with the reserve.", f"{_NODE}::storage"),
    ("full", _G, "", "1 while publishes are refused because the disks are full.", f"{_NODE}::full_disks"),
    ("too_few_disks", _G, "", "1 while publishes are refused because too few disks work.", f"{_NODE}::failed_disks"),
    ("ended", _G, "", "1 once the log cannot be written any more: restart, or see its disks.", f"{_CASES}::ended_log"),
    ("cache_hits_total", _C, "", "Reads that the tail cache answered.", f"{_NODE}::storage"),
    ("cache_misses_total", _C, "", "Reads that went to disks.", f"{_NODE}::cold_reads"),
    ("checkpoints_total", _C, "", "Checkpoints begun.", f"{_NODE}::storage"),
    ("collect_steps_total", _C, "", "Steps of deletion.", f"{_NODE}::storage"),
    ("judged_entries_total", _C, "", "Entries that deletion has judged.", f"{_NODE}::deletion"),
    ("removed_segments_total", _C, "", "Segments deleted.", f"{_NODE}::deletion"),
    ("copied_entries_total", _C, "", "Entries copied forward, so that their segment could go.", f"{_NODE}::copying"),
    ("copied_bytes_total", _C, "bytes", "Bytes of them.", f"{_NODE}::copying"),
    ("refused_full_total", _C, "", "Publishes refused for want of room on disks.", f"{_NODE}::full_disks"),
    ("earlier_logs", _G, "", "Logs of earlier lives that are still there.", f"{_NODE}::restart"),
    ("uncovered_logs", _G, "", "Those that the newest checkpoint does not replace.", f"{_NODE}::restart"),
    ("ledgers", _G, "", "Subscriptions whose acknowledgements are kept.", f"{_CASES}::catalog"),
    (
        "passed_over_messages_total",
        _C,
        "",
        "Messages that ran out, or were deleted, unacknowledged.",
        f"{_CASES}::expiry",
    ),
)
_DISKS: Final = (
    ("position", _G, "", "Entries of the log that are synced here.", f"{_NODE}::storage"),
    ("behind_entries", _G, "", "Entries of the log that are not synced here yet.", f"{_NODE}::failed_disks"),
    ("queued_bytes", _G, "bytes", "That wait to be written.", f"{_NODE}::failed_disks"),
    ("free_bytes", _G, "bytes", "Room on the file system, without spare segments.", f"{_NODE}::storage"),
    ("spare_segments", _G, "", "Segments that are ready to be written.", f"{_NODE}::storage"),
    ("lacking_segments", _G, "", "Segments that are to be copied here.", f"{_NODE}::failed_disks"),
    ("unreadable_places", _G, "", "Places where no disk has what was written: messages are lost.", f"{_NODE}::damage"),
    ("commits_total", _C, "", "Group commits.", f"{_NODE}::storage"),
    ("entries_total", _C, "", "Entries written.", f"{_NODE}::storage"),
    ("written_bytes_total", _C, "bytes", "Bytes of them.", f"{_NODE}::storage"),
    ("failures_total", _C, "", "How often the disk was given up.", f"{_NODE}::failed_disks"),
    ("damages_total", _C, "", "Places that were found damaged, healed or not.", f"{_NODE}::damage"),
    ("healed_segments_total", _C, "", "Segments copied here from other disks.", f"{_NODE}::healing"),
)
FAMILIES: Final = (
    *(Family(f"syncpoint_log_{name}", kind, unit, ("chain",), text, by) for name, kind, unit, text, by in _LOG),
    *(Family(f"syncpoint_disk_{name}", kind, unit, _DISK, text, by) for name, kind, unit, text, by in _DISKS),
    Family("syncpoint_disk_state", _G, "", (*_DISK, "state"), "1 for the state it is in.", f"{_NODE}::failed_disks"),
    Family("syncpoint_disk_commit_seconds", _H, "seconds", _DISK, "How long group commits took.", f"{_NODE}::storage"),
    Family(
        "syncpoint_disk_sync_seconds",
        _H,
        "seconds",
        _DISK,
        "How long the disk took to make entries durable (fdatasync).",
        f"{_NODE}::storage",
    ),
)


class LogRoom(QuickCollector):
    """`chains`: the publish forwarder of each chain that is open."""

    name = "logs"

    def __init__(self, chains: Callable[[], Mapping[int, PublishForwarder]]) -> None:
        self._chains = chains

    def collect(self, samples: Samples) -> None:
        """See `RoomCollector`."""
        for number, forwarder in self._chains().items():
            status = forwarder.store.status()
            for name, value in _log_values(forwarder, status).items():
                samples.put(f"syncpoint_log_{name}", value, str(number))
            for disk, counts in zip(status.disks, forwarder.store.disk_counts, strict=True):
                labels = (str(number), str(disk.path))
                values = {
                    **_disk_values(status, disk),
                    "commits_total": counts.commits,
                    "entries_total": counts.entries,
                    "written_bytes_total": counts.bytes,
                    "failures_total": counts.failures,
                    "damages_total": counts.damaged,
                    "healed_segments_total": counts.healed,
                }
                for name, value in values.items():
                    samples.put(f"syncpoint_disk_{name}", value, *labels)
                for state in STATES:
                    samples.put("syncpoint_disk_state", int(disk.state == state), *labels, state)
                samples.put_histogram("syncpoint_disk_commit_seconds", counts.commit, *labels)
                samples.put_histogram("syncpoint_disk_sync_seconds", counts.sync, *labels)


def _log_values(forwarder: PublishForwarder, status: StoreStatus) -> Mapping[str, float]:
    store, counts = forwarder.store, forwarder.store.counts
    return {
        "counter": status.log_counter,
        "appended_position": status.appended,
        "persisted_position": status.persisted,
        "waiting_entries": max(0, status.appended - status.persisted),
        "under_replicated_entries": status.under_replicated,
        "written_bytes_total": store.appended_bytes,
        "segments": status.segments,
        "sources": status.sources,
        "cached_bytes": status.cache_bytes,
        "room_bytes": status.room_bytes,
        "full": int(status.full),
        "too_few_disks": int(status.too_few),
        "ended": int(forwarder.commit.failed is not None),
        "cache_hits_total": counts.cache_hits,
        "cache_misses_total": counts.cache_misses,
        "checkpoints_total": counts.checkpoints,
        "collect_steps_total": counts.collect_steps,
        "judged_entries_total": counts.judged_entries,
        "removed_segments_total": counts.removed_segments,
        "copied_entries_total": counts.copied_entries,
        "copied_bytes_total": counts.copied_bytes,
        "refused_full_total": counts.refused_full,
        "earlier_logs": store.earlier_logs,
        "uncovered_logs": store.uncovered_logs,
        "ledgers": len(forwarder.ledgers),
        "passed_over_messages_total": forwarder.ledgers.passed_over,
    }


def _disk_values(status: StoreStatus, disk: DiskStatus) -> Mapping[str, float]:
    return {
        "position": disk.position,
        "behind_entries": max(0, status.appended - disk.position),
        "queued_bytes": disk.queued_bytes,
        "free_bytes": disk.free_bytes,
        "spare_segments": disk.pool_segments,
        "lacking_segments": disk.lacking_segments,
        "unreadable_places": disk.unreadable,
    }
