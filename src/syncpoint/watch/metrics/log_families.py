"""Families of logs and their disks, for each chain that is open in a process: on a node, chain 0.

Place: where publishes become durable. A chain that is opened again counts from zero.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final

from syncpoint.broker.publish.intake.forwarder import PublishForwarder
from syncpoint.log.storage.disk.store_status import DiskStatus, StoreStatus
from syncpoint.watch.metrics.copy_age import CopyAge
from syncpoint.watch.metrics.family import Family, MetricKind, QuickCollector, Samples

_C, _G, _H = MetricKind.COUNTER, MetricKind.GAUGE, MetricKind.HISTOGRAM
_DISK: Final = ("chain", "disk")
STATES: Final = ("ok", "damaged", "healing", "away", "failed")

_LOG: Final = (
    ("counter", _G, "", "Number of the current log."),
    ("appended_position", _G, "", "Entries appended to the log."),
    ("persisted_position", _G, "", "Persisted entries of the log."),
    ("waiting_entries", _G, "", "Entries not persisted yet."),
    ("under_replicated_entries", _G, "", "Entries missing on at least one disk."),
    (
        "under_replicated_seconds",
        _G,
        "seconds",
        "Lower bound on the age of the oldest under-replicated entry.",
    ),
    ("written_bytes_total", _C, "bytes", "Bytes appended to the log."),
    ("segments", _G, "", "Segments of this log and of earlier ones."),
    ("sources", _G, "", "Sources with stored messages."),
    ("cached_bytes", _G, "bytes", "Bytes of the newest messages in memory (the tail cache)."),
    ("room_bytes", _G, "bytes", "Bytes that can still be stored on enough disks, including the reserve."),
    ("full", _G, "", "1 while publishes are refused because the disks are full."),
    ("too_few_disks", _G, "", "1 while publishes are refused because too few disks are healthy."),
    ("ended", _G, "", "1 once the log can no longer be written: check its disks, then restart the process."),
    ("cache_hits_total", _C, "", "Reads answered by the tail cache."),
    ("cache_misses_total", _C, "", "Reads from disks."),
    ("checkpoints_total", _C, "", "Checkpoints started."),
    ("collect_steps_total", _C, "", "Deletion steps."),
    ("judged_entries_total", _C, "", "Entries examined by deletion."),
    ("removed_segments_total", _C, "", "Segments deleted."),
    ("copied_entries_total", _C, "", "Entries copied forward, so that their segment could be deleted."),
    ("copied_bytes_total", _C, "bytes", "Bytes copied forward."),
    ("refused_full_total", _C, "", "Publishes refused because the disks are full."),
    ("earlier_logs", _G, "", "Logs of earlier runs that still exist."),
    ("uncovered_logs", _G, "", "Earlier logs not covered by the latest checkpoint."),
    ("ledgers", _G, "", "Subscriptions with stored acknowledgements."),
    (
        "passed_over_messages_total",
        _C,
        "",
        "Messages that expired, or were deleted, without being acknowledged.",
    ),
)
_DISKS: Final = (
    ("position", _G, "", "Entries of the log that are synced here."),
    ("behind_entries", _G, "", "Entries of the log that are not synced here yet."),
    ("queued_bytes", _G, "bytes", "Bytes waiting to be written."),
    ("free_bytes", _G, "bytes", "Free bytes on the file system, excluding spare segments."),
    ("spare_segments", _G, "", "Segments ready to be written."),
    ("lacking_segments", _G, "", "Segments waiting to be copied to this disk."),
    ("unreadable_places", _G, "", "Places with no intact copy on any disk: messages are lost."),
    ("commits_total", _C, "", "Group commits."),
    ("entries_total", _C, "", "Entries written."),
    ("written_bytes_total", _C, "bytes", "Bytes written."),
    ("failures_total", _C, "", "Disk failures."),
    ("damages_total", _C, "", "Damaged places found, repaired or not."),
    ("healed_segments_total", _C, "", "Segments copied here from other disks."),
)
COLD_READS: Final = (
    ("cold_read_bytes_total", _C, "bytes", "Bytes read from the disk."),
    ("cold_read_wait_seconds_total", _C, "seconds", "Time that reads waited for commits."),
    ("cold_read_share", _G, "", "Share of the disk's time allowed to reads beside commits."),
)
FAMILIES: Final = (
    *(Family(f"syncpoint_log_{name}", kind, unit, ("chain",), text) for name, kind, unit, text in _LOG),
    *(Family(f"syncpoint_disk_{name}", kind, unit, _DISK, text) for name, kind, unit, text in (*_DISKS, *COLD_READS)),
    Family("syncpoint_disk_state", _G, "", (*_DISK, "state"), "1 for the current state of the disk."),
    Family("syncpoint_disk_commit_seconds", _H, "seconds", _DISK, "Duration of group commits."),
    Family(
        "syncpoint_disk_sync_seconds",
        _H,
        "seconds",
        _DISK,
        "Time to make entries durable on the disk (fdatasync).",
    ),
)


class LogRoom(QuickCollector):
    """`chains`: the publish forwarder of each chain that is open."""

    name = "logs"

    def __init__(
        self, chains: Callable[[], Mapping[int, PublishForwarder]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._chains, self._clock = chains, clock
        self._copying: dict[int, CopyAge] = {}

    def collect(self, samples: Samples) -> None:
        chains, now_s = self._chains(), self._clock()
        self._copying = {number: self._copying.get(number) or CopyAge() for number in chains}
        for number, forwarder in chains.items():
            status = forwarder.store.status()
            age_s = self._copying[number].looked((status.log_counter, status.appended), status.under_replicated, now_s)
            samples.put("syncpoint_log_under_replicated_seconds", age_s, str(number))
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
                    **({} if counts.turns is None else counts.turns.figures()),
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
