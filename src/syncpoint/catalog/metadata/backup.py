"""A copy of the metadata in a file, and a cluster's metadata from such a file.

Place: serves `syncpoint cluster backup` and `restore`. The messages are on the disks and are not part of it.
Promise: a backup is what the store held at one revision, while everybody goes on; it is text, a key per line, and its
checksum covers every byte. A restore never brings a number back that may be on a disk: disks are newer than the backup.
So every counter, every epoch and the catalog's revision leap far ahead, beyond what was given out since, and the
universe is drawn anew for chains that are founded from now on. Those that exist keep the one that their disks carry;
their logs go on at a number that is drawn, so that two clusters restored from one backup do not give the same ids.
It is refused while members live; broken off, it leaves a store without a universe, which can only be restored again.
What was made after the backup is unknown afterwards: topics and subscriptions, and data keys of sealed messages where
the store has lost them (those that it still has, stay). Which topics are unknown that way is stated by the catalog
(`restored_topics`), so that nobody takes their messages for what is left of deleted ones. Revisions of the catalog and
incarnations also rise with the clock: of two restores of one backup into stores that know nothing of each other, the
later one has the higher numbers.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from syncpoint.base.model.errors import FailedPrecondition
from syncpoint.base.model.identity import UNIVERSE_END, UNIVERSE_MIN
from syncpoint.base.runtime.clock import Clock
from syncpoint.base.runtime.random import Random
from syncpoint.catalog.metadata import restored_topics
from syncpoint.catalog.metadata.catalog_replica import record_key
from syncpoint.catalog.metadata.contract import (
    TXN_BYTES_MAX,
    TXN_OPS_MAX,
    Delete,
    Indeterminate,
    KeyValue,
    Operation,
    Put,
    Resync,
    StoreUnavailable,
    absent,
    unchanged,
)
from syncpoint.catalog.metadata.layout import (
    ASSIGNMENTS,
    CHAINS,
    COUNTERS,
    EPOCHS,
    HEAD,
    INCARNATION_COUNTER,
    KEYS,
    LAST_BACKUP,
    LAST_RESTORE,
    LOG_COUNTER,
    MEMBERS,
    NOT_BACKED_UP,
    RECORDS,
    UNIVERSE,
)
from syncpoint.catalog.metadata.records import Setting, Subscription, Topic, decode_record, encode_record
from syncpoint.catalog.metadata.store_client import SharedStore, read_all

FORMAT = 1

# Far more than is given out between two backups, and far less than there are numbers (40 bits of logs, 32 of epochs).
_LEAPS = {LOG_COUNTER: 1 << 24, INCARNATION_COUNTER: 1 << 32}
_LEAP = 1 << 16
_LOGS_DRAWN = 1 << 32
_EPOCH_LEAP = 1 << 16
_LANE_LEAP = 1_000
_REVISION_LEAP = 1 << 32
_PER_SECOND = 1 << 24  # more than are given out in a second
_STARTED = "a process started while the metadata were being restored: stop it, and restore again"
_TOPICS, _SUBSCRIPTIONS = RECORDS.under("topics"), RECORDS.under("subscriptions")
_LOST = record_key(Setting(restored_topics.NAME))


class Damaged(ValueError):
    """The file is not a whole backup that this version understands."""


class Backup(NamedTuple):
    """A backup that was read and checked. `store`: identity of the store it was made of."""

    store: str
    revision: int
    time_ns: int
    items: Mapping[str, bytes]


class Restored(NamedTuple):
    """What a restore did."""

    keys: int
    removed: int
    universe: int


async def take_backup(store: SharedStore, clock: Clock) -> bytes:
    """The content of a backup file. Leaves a note of itself in the store (`backup/last`).

    Pages of a listing are read at different revisions. A watch reports what changed in the meantime, and the note is a
    change of our own: once the watch shows it, everything up to its revision is known.
    """
    begin = (await store.status()).revision + 1
    watch = store.watch("", from_revision=begin)
    try:
        listed, _ = await read_all(store, "")
        items = {item.key: item.value for item in listed if item.lease is None}
        note = json.dumps({"time_ns": clock.time_ns(), "revision": begin}).encode()
        revision = (await store.txn([], [Put(LAST_BACKUP, note)])).revision
        reached = 0
        while reached < revision:
            events = await watch.next()
            if isinstance(events, Resync):
                raise StoreUnavailable("the metadata change faster than they can be read")
            for event in events:
                if event.revision > revision:
                    break
                if event.value is None:
                    items.pop(event.key, None)
                else:
                    items[event.key] = event.value
            reached = events[-1].revision
    finally:
        await watch.close()
    return _encode(Backup(store.cluster_id, revision, clock.time_ns(), items))


def read_backup(data: bytes) -> Backup:
    """Check the content of a backup file. Raises `Damaged`."""
    *lines, last = data.splitlines(keepends=True) or [b""]
    try:
        digest = json.loads(last)["sha256"]
        if digest != hashlib.sha256(b"".join(lines)).hexdigest():
            raise Damaged("the backup's checksum is not that of its content")
        head = json.loads(lines[0])
        if head["format"] != FORMAT:
            raise Damaged(f"a backup of format {head['format']}, this version reads {FORMAT}")
        items = {}
        for line in lines[1:]:
            key, value = json.loads(line)
            items[key] = base64.b64decode(value, validate=True)
        if len(items) != head["keys"]:
            raise Damaged(f"a backup of {head['keys']} keys holds {len(items)}")
        return Backup(head["store"], head["revision"], head["time_ns"], items)
    except (ValueError, KeyError, TypeError, IndexError, binascii.Error) as error:
        raise error if isinstance(error, Damaged) else Damaged(f"not a whole backup: {error}") from error


def write_file(path: Path, data: bytes) -> None:
    """Put a backup on the disk: under its name there is the whole of it or what was there before."""
    partly = path.with_name(path.name + ".part")
    with partly.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partly, path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


async def restore(store: SharedStore, backup: Backup, random: Random, clock: Clock) -> Restored:
    """Make the store hold what the backup holds, with a universe of its own and numbers that are all new.

    Whatever else the store held is removed, but for data keys. Raises `FailedPrecondition` while members live, or when
    one starts.
    """
    await refuse_members(store)
    known = {item.key: item.value for item in (await read_all(store, ""))[0]}
    old = {int(found) for found in (known.get(UNIVERSE), backup.items.get(UNIVERSE)) if found is not None}
    await _remove_universe(store, await store.get(UNIVERSE))
    kept = {key: value for key, value in known.items() if key.startswith((COUNTERS, EPOCHS))}
    numbers = {**kept, **{key: v for key, v in backup.items.items() if key.startswith((COUNTERS, EPOCHS))}}
    leapt = {key: _leapt(key, numbers[key], known.get(key)) for key in sorted(numbers)}
    floor = clock.time_ns() // 1_000_000_000 * _PER_SECOND
    if INCARNATION_COUNTER in leapt:
        leapt[INCARNATION_COUNTER] = b"%d" % max(int(leapt[INCARNATION_COUNTER]), floor)
    if LOG_COUNTER in leapt:
        leapt[LOG_COUNTER] = b"%d" % (int(leapt[LOG_COUNTER]) + random.randrange(0, _LOGS_DRAWN))
    await _write(store, [Put(key, value) for key, value in leapt.items()])
    last_ones = {UNIVERSE, HEAD, _LOST}
    wanted = {key: value for key, value in backup.items.items() if key not in numbers and key not in last_ones}
    for key in [key for key in wanted if key.startswith(CHAINS)]:
        wanted[key] = _of_universe(wanted[key], int(backup.items.get(UNIVERSE, b"0")))
    await _write(store, [Put(key, _leapt(key, value, known.get(key))) for key, value in sorted(wanted.items())])
    stale = known.keys() - wanted.keys() - numbers.keys() - last_ones
    gone = sorted(key for key in stale if not key.startswith(KEYS))
    await _write(store, [Delete(key) for key in gone])
    await refuse_members(store)
    universe = _draw(random, old)
    then = _head(backup.items.get(HEAD), known.get(HEAD), floor)
    last: list[Operation] = [
        Put(UNIVERSE, b"%d" % universe),
        Put(LAST_RESTORE, _note(backup, clock)),
        Put(HEAD, b"%d %d" % then),
        Put(_LOST, encode_record(_lost(backup, then[0]).setting())),
    ]
    try:
        done = (await store.txn([absent(UNIVERSE)], last)).ok
    except Indeterminate:
        found = await store.get(UNIVERSE)
        done = found is not None and found.value == b"%d" % universe
    if not done:
        raise FailedPrecondition(_STARTED)
    return Restored(len(wanted) + len(numbers), len(gone), universe)


async def refuse_members(store: SharedStore) -> None:
    """Raise `FailedPrecondition` while processes live."""
    living = (await store.range(MEMBERS)).items
    if living:
        names = ", ".join(MEMBERS.name(item.key) for item in living[:5])
        raise FailedPrecondition(f"{len(living)} members live ({names}): stop all processes before restoring metadata")


async def _remove_universe(store: SharedStore, known: KeyValue | None) -> None:
    """From now on, and until it is drawn anew, a restore is under way. Removes what was read and no later one."""
    while (found := await store.get(UNIVERSE)) is not None:
        if known is None or found.revision != known.revision:
            raise FailedPrecondition(_STARTED)
        with contextlib.suppress(Indeterminate):
            await store.txn([unchanged(UNIVERSE, known.revision)], [Delete(UNIVERSE)])


async def _write(store: SharedStore, operations: Iterable[Operation]) -> None:
    """As long as there is no universe, which is written last: a batch that arrives after that, because nobody received
    what became of it and it was sent again, must not undo what was drawn and changed since.
    """
    for batch in _batches(operations):
        while True:
            try:
                if not (await store.txn([absent(UNIVERSE)], batch)).ok:
                    raise FailedPrecondition(_STARTED)
                break
            except Indeterminate:
                continue  # the same again does no harm


def _batches(operations: Iterable[Operation]) -> Iterator[list[Operation]]:
    batch: list[Operation] = []
    size = 0
    for operation in operations:
        bytes_more = len(operation.key.encode()) + (len(operation.value) if isinstance(operation, Put) else 0)
        if batch and (len(batch) == TXN_OPS_MAX or size + bytes_more > TXN_BYTES_MAX):
            yield batch
            batch, size = [], 0
        batch.append(operation)
        size += bytes_more
    if batch:
        yield batch


def _leapt(key: str, value: bytes, known: bytes | None) -> bytes:
    """The value to restore: numbers go beyond both the backup's and what stands in the store."""
    if key.startswith(COUNTERS):
        return b"%d" % (max(int(value), int(known or 0)) + _LEAPS.get(key, _LEAP))
    if key.startswith(EPOCHS):
        return b"%d" % (max(int(value), int(known or 0)) + _EPOCH_LEAP)
    if key.startswith(ASSIGNMENTS):
        found = json.loads(value)
        newest = json.loads(known)["epoch"] if known else 0
        return json.dumps({**found, "epoch": max(found["epoch"], newest) + _EPOCH_LEAP}, separators=(",", ":")).encode()
    if key.startswith(_SUBSCRIPTIONS):
        record = decode_record(value)
        if isinstance(record, Subscription):  # with rules or not: it may have had some after the backup
            options = record.options._replace(next_lane=record.options.next_lane + _LANE_LEAP)
            return encode_record(replace(record, options=options))
    return value


def _of_universe(chain: bytes, universe: int) -> bytes:
    """A chain's record with what was implied made explicit: it belongs to the universe in which it was founded."""
    found = json.loads(chain)
    return (
        chain if found.get("universe") else json.dumps({**found, "universe": universe}, separators=(",", ":")).encode()
    )


def _head(backups: bytes | None, known: bytes | None, floor: int) -> tuple[int, int]:
    """The revision that the restored catalog begins at, and the highest incarnation in it."""
    (one, highest), (other, too) = (tuple(map(int, (head or b"0 0").split())) for head in (backups, known))
    return max(max(one, other) + _REVISION_LEAP, floor), max(highest, too)


def _lost(backup: Backup, begin: int) -> restored_topics.LostTopics:
    """What came between the backup and the revision that the catalog goes on from."""
    before, items = restored_topics.NOTHING, backup.items
    if _LOST in items:
        record = decode_record(items[_LOST])
        before = restored_topics.decode(record.value) if isinstance(record, Setting) else before
    records = (decode_record(value) for key, value in items.items() if key.startswith(_TOPICS))
    topics = (record.incarnation for record in records if isinstance(record, Topic))
    return before.with_gap(int(items.get(HEAD, b"0 0").split()[0]), begin, topics)


def _draw(random: Random, others: set[int]) -> int:
    while (universe := random.randrange(UNIVERSE_MIN, UNIVERSE_END)) in others:
        pass
    return universe


def _note(backup: Backup, clock: Clock) -> bytes:
    about: dict[str, Any] = {"store": backup.store, "revision": backup.revision, "taken_ns": backup.time_ns}
    return json.dumps({**about, "time_ns": clock.time_ns()}).encode()


def _encode(backup: Backup) -> bytes:
    kept = {key: value for key, value in backup.items.items() if not key.startswith(NOT_BACKED_UP)}
    head = {
        "format": FORMAT,
        "store": backup.store,
        "revision": backup.revision,
        "time_ns": backup.time_ns,
        "keys": len(kept),
    }
    lines = [json.dumps(head)]
    lines += [json.dumps([key, base64.b64encode(value).decode()]) for key, value in sorted(kept.items())]
    content = "".join(f"{line}\n" for line in lines).encode()
    return content + json.dumps({"sha256": hashlib.sha256(content).hexdigest()}).encode() + b"\n"
