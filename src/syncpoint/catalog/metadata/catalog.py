"""The catalog: every topic, subscription, snapshot and setting of a server, in memory, as of one revision.

Place: looked up by every request; changed only by applying `CatalogChange`s, which the node persists in the log first.
Promise: applying is idempotent by revision, so a log may be replayed over a checkpoint from anywhere before its end; a
lost change is noticed. Incarnation numbers are never used twice. Listings are sorted by name and stable under inserts.
Leaves to the api: what a legal record is. Leaves to the node: when a change counts as persisted.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Container, Iterable, Iterator
from typing import Generic, Protocol, TypeVar

from syncpoint.base.model.names import project_of
from syncpoint.catalog.metadata.records import (
    CatalogChange,
    ChangeOp,
    Feature,
    Record,
    Setting,
    Snapshot,
    Subscription,
    Topic,
    decode_header,
    decode_record,
    encode_header,
    encode_record,
)

LAST = "\U0010ffff"  # what begins with a prefix sorts before the prefix followed by this
PART_BYTES_MAX = 256 * 1024
_LENGTH_BYTES = 4

_R = TypeVar("_R", Topic, Subscription, Snapshot)


class _Collection(Generic[_R]):
    """Records of one kind by name, by incarnation, in order, and (where they have one) by topic."""

    __slots__ = ("by_incarnation", "by_name", "by_topic", "names")

    def __init__(self) -> None:
        self.by_name: dict[str, _R] = {}
        self.by_incarnation: dict[int, _R] = {}
        self.names: list[str] = []
        self.by_topic: dict[int, dict[int, None]] = {}

    def put(self, record: _R) -> None:
        known = self.by_incarnation.get(record.incarnation)
        if known is not None and known.name != record.name:
            raise ValueError(f"incarnation {record.incarnation} changed its name")
        holder = self.by_name.get(record.name)
        if holder is None:
            insort(self.names, record.name)
        elif holder.incarnation != record.incarnation:
            raise ValueError(f"{record.name} is taken by incarnation {holder.incarnation}")
        self.by_name[record.name] = record
        self.by_incarnation[record.incarnation] = record
        if not isinstance(record, Topic):
            self.by_topic.setdefault(record.topic_incarnation, {})[record.incarnation] = None

    def delete(self, record: _R) -> None:
        known = self.by_incarnation.pop(record.incarnation, None)
        if known is None:
            return
        del self.by_name[known.name]
        del self.names[bisect_left(self.names, known.name)]
        if not isinstance(known, Topic):
            siblings = self.by_topic[known.topic_incarnation]
            del siblings[known.incarnation]
            if not siblings:
                del self.by_topic[known.topic_incarnation]

    def page(self, prefix: str, after: str | None, limit: int) -> list[_R]:
        """Up to `limit` records whose names start with `prefix` and come after `after`."""
        names = self.names
        at = bisect_left(names, prefix) if after is None else bisect_right(names, max(prefix, after))
        found: list[_R] = []
        while at < len(names) and len(found) < limit and names[at].startswith(prefix):
            found.append(self.by_name[names[at]])
            at += 1
        return found

    def projects(self) -> Iterator[str]:
        """In order, without a look at each record."""
        names, at = self.names, 0
        while at < len(names):
            project = project_of(names[at])
            yield project
            at = bisect_left(names, f"{project}/{LAST}", at)

    def of_topic(self, topic_incarnation: int) -> list[_R]:
        return [self.by_incarnation[number] for number in self.by_topic.get(topic_incarnation, ())]


class CatalogCopy(Protocol):
    """The catalog as this process knows it, which changes while it is used."""

    @property
    def catalog(self) -> Catalog: ...

    @property
    def on_change(self) -> list[Callable[[CatalogChange], None]]: ...

    async def at(self, revision: int) -> None:
        """Return once the copy is at a revision or above it."""
        ...


def listening(
    listener: Callable[[CatalogChange], None],
    kind: type[Record],
    feature: Feature | None = None,
    known: Container[int] = (),
) -> Callable[[CatalogChange], None]:
    """A listener that is called for changes of records of one kind; of subscriptions only for those that ask for a
    feature, or are `known` by their incarnation to have done so. Others pay nothing for it.
    """

    def changed(change: CatalogChange) -> None:
        record = change.record
        if isinstance(record, kind) and (
            feature is None
            or (isinstance(record, Subscription) and (feature in record.features or record.incarnation in known))
        ):
            listener(change)

    return changed


class Catalog:
    """All records as of `revision`."""

    __slots__ = (
        "_followers", "_incarnation", "_setting_names", "_settings", "_snapshots", "_subscriptions", "_topics",
        "revision",
    )  # fmt: skip

    def __init__(self) -> None:
        self.revision = 0
        self._incarnation = 0
        self._topics: _Collection[Topic] = _Collection()
        self._subscriptions: _Collection[Subscription] = _Collection()
        self._snapshots: _Collection[Snapshot] = _Collection()
        self._settings: dict[str, Setting] = {}
        self._setting_names: list[str] = []  # in order
        self._followers: list[tuple[str, Callable[[str, bytes | None], None]]] = []

    # -- looking up --------------------------------------------------------------------------------------------------

    def topic(self, name: str) -> Topic | None:
        """The topic that has this full name now."""
        return self._topics.by_name.get(name)

    def topic_by_incarnation(self, incarnation: int) -> Topic | None:
        """The topic with this number, if it has not been deleted."""
        return self._topics.by_incarnation.get(incarnation)

    def topic_of(self, record: Subscription | Snapshot) -> Topic | None:
        """The topic a subscription or snapshot belongs to; None once that very topic is deleted."""
        return self._topics.by_incarnation.get(record.topic_incarnation)

    def subscription(self, name: str) -> Subscription | None:
        """The subscription that has this full name now."""
        return self._subscriptions.by_name.get(name)

    def subscription_by_incarnation(self, incarnation: int) -> Subscription | None:
        """The subscription with this number, if it has not been deleted."""
        return self._subscriptions.by_incarnation.get(incarnation)

    def subscriptions_of(self, topic_incarnation: int) -> list[Subscription]:
        """Subscriptions of a topic, detached ones included, also when the topic is deleted; in no given order."""
        return self._subscriptions.of_topic(topic_incarnation)

    def subscription_count_of(self, topic_incarnation: int) -> int:
        """How many `subscriptions_of` would give."""
        return len(self._subscriptions.by_topic.get(topic_incarnation, ()))

    def snapshot(self, name: str) -> Snapshot | None:
        """The snapshot that has this full name now."""
        return self._snapshots.by_name.get(name)

    def snapshot_by_incarnation(self, incarnation: int) -> Snapshot | None:
        """The snapshot with this number, if it has not been deleted."""
        return self._snapshots.by_incarnation.get(incarnation)

    def snapshots_of(self, topic_incarnation: int) -> list[Snapshot]:
        """Snapshots of a topic, also when the topic is deleted; in no given order."""
        return self._snapshots.of_topic(topic_incarnation)

    def setting(self, name: str) -> bytes | None:
        """The value of a setting; None when it was never set."""
        found = self._settings.get(name)
        return None if found is None else found.value

    def settings_named(self, prefix: str) -> list[str]:
        """The names of all settings that begin so, in order."""
        names = self._setting_names
        return names[bisect_left(names, prefix) : bisect_left(names, prefix + LAST)]

    def follow_settings(self, prefix: str, notice: Callable[[str, bytes | None], None]) -> None:
        """Call `notice` with the name and value of every setting that begins so, now and whenever it changes; None: it
        was deleted."""
        self._followers.append((prefix, notice))
        for name in self.settings_named(prefix):
            notice(name, self._settings[name].value)

    # -- listing -----------------------------------------------------------------------------------------------------

    def topics_in(self, project: str, after: str | None, limit: int) -> list[Topic]:
        """Up to `limit` topics of `projects/P` in order of name, those after the full name `after`."""
        return self._topics.page(f"{project}/topics/", after, limit)

    def subscriptions_in(self, project: str, after: str | None, limit: int) -> list[Subscription]:
        """As `topics_in`, for subscriptions."""
        return self._subscriptions.page(f"{project}/subscriptions/", after, limit)

    def snapshots_in(self, project: str, after: str | None, limit: int) -> list[Snapshot]:
        """As `topics_in`, for snapshots."""
        return self._snapshots.page(f"{project}/snapshots/", after, limit)

    def projects(self) -> list[str]:
        """All `projects/P` that have a topic or a subscription, in order."""
        return sorted({*self._topics.projects(), *self._subscriptions.projects()})

    def topics(self) -> Iterator[Topic]:
        """All topics. The catalog must not change in the meantime."""
        return iter(self._topics.by_incarnation.values())

    def subscriptions(self) -> Iterator[Subscription]:
        """All subscriptions. The catalog must not change in the meantime."""
        return iter(self._subscriptions.by_incarnation.values())

    def snapshots(self) -> Iterator[Snapshot]:
        """All snapshots. The catalog must not change in the meantime."""
        return iter(self._snapshots.by_incarnation.values())

    def counts(self) -> tuple[int, int, int]:
        """Numbers of topics, subscriptions and snapshots."""
        return (
            len(self._topics.by_incarnation),
            len(self._subscriptions.by_incarnation),
            len(self._snapshots.by_incarnation),
        )

    # -- changing ----------------------------------------------------------------------------------------------------

    def next_incarnation(self) -> int:
        """A number (u64, from 1) that no record has or will ever have had.

        A number drawn and never used in a persisted change may be drawn again by the next process, which is harmless.
        """
        self._incarnation += 1
        return self._incarnation

    def assign(self, changes: Iterable[CatalogChange]) -> list[CatalogChange]:
        """The changes with the revisions that follow this catalog's; apply them before asking again."""
        return [change.at(revision) for revision, change in enumerate(changes, self.revision + 1)]

    def apply(self, change: CatalogChange) -> bool:
        """Take over one change; False when it is already in. Raises `ValueError` when one before it is missing.

        The catalog is unchanged when it raises.
        """
        if change.revision <= self.revision:
            return False
        if change.revision != self.revision + 1:
            raise ValueError(f"catalog at revision {self.revision} was given change {change.revision}")
        if change.op is ChangeOp.PUT:
            self._put(change.record)
        else:
            self._delete(change.record)
        self.revision = change.revision
        return True

    def become(self, records: Iterable[Record], revision: int, incarnation: int) -> list[CatalogChange]:
        """Hold exactly these records, as of a later revision whose changes are not all known.

        Returns the differences, all at that revision, in an order in which they could have happened: deletions first.
        """
        wanted = {_identity(record): record for record in records}
        known = {_identity(record): record for record in self.records()}
        gone = [
            CatalogChange(revision, ChangeOp.DELETE, record)
            for identity, record in known.items()
            if identity not in wanted
        ]
        put = [
            CatalogChange(revision, ChangeOp.PUT, record) for key, record in wanted.items() if known.get(key) != record
        ]
        for change in gone:
            self._delete(change.record)
        for change in put:
            self._put(change.record)
        self.revision = revision
        self._incarnation = max(self._incarnation, incarnation)
        return gone + put

    @property
    def incarnation(self) -> int:
        """The highest incarnation of any record there has been."""
        return self._incarnation

    def _put(self, record: Record) -> None:
        match record:
            case Topic():
                self._topics.put(record)
            case Subscription():
                self._subscriptions.put(record)
            case Snapshot():
                self._snapshots.put(record)
            case Setting():
                if record.name not in self._settings:
                    insort(self._setting_names, record.name)
                self._settings[record.name] = record
                self._notify(record.name, record.value)
                return
        self._incarnation = max(self._incarnation, record.incarnation)

    def _delete(self, record: Record) -> None:
        match record:
            case Topic():
                self._topics.delete(record)
            case Subscription():
                self._subscriptions.delete(record)
            case Snapshot():
                self._snapshots.delete(record)
            case Setting():
                if self._settings.pop(record.name, None) is not None:
                    del self._setting_names[bisect_left(self._setting_names, record.name)]
                    self._notify(record.name, None)

    def _notify(self, name: str, value: bytes | None) -> None:
        for prefix, notice in self._followers:
            if name.startswith(prefix):
                notice(name, value)

    # -- checkpoints -------------------------------------------------------------------------------------------------

    def records(self) -> list[Record]:
        """All records, each kind in order of name."""
        found: list[Record] = []
        for collection in (self._topics, self._subscriptions, self._snapshots):
            found += [collection.by_name[name] for name in collection.names]
        found += [self._settings[name] for name in self._setting_names]
        return found

    def encode_parts(self, part_bytes_max: int = PART_BYTES_MAX) -> Iterator[bytes]:
        """The whole catalog as of now in parts of at most that many bytes, for `from_parts`.

        The records are gathered before this returns and encoded as the parts are drawn, so later changes do not show.
        A part may end in the middle of a record: however large one record, the parts stay small.
        """
        records = self.records()
        header = encode_header(self.revision, self._incarnation, len(records))
        return _cut(_framed(header, records), part_bytes_max)

    @staticmethod
    def from_parts(parts: Iterable[bytes]) -> Catalog:
        """The catalog that `encode_parts` took apart. Raises `ValueError` when parts are missing or foreign."""
        catalog = Catalog()
        frames = _frames(parts)
        first = next(frames, None)
        if first is None:
            raise ValueError("a catalog checkpoint without parts")
        revision, incarnation, expected = decode_header(first)
        found = 0
        for found, data in enumerate(frames, 1):  # noqa: B007 - the count is wanted after the loop
            catalog._put(decode_record(data))
        if found != expected:
            raise ValueError(f"a catalog checkpoint of {expected} records holds {found}")
        catalog.revision = revision
        catalog._incarnation = max(catalog._incarnation, incarnation)
        return catalog


def _identity(record: Record) -> tuple[type, int | str]:
    return type(record), record.name if isinstance(record, Setting) else record.incarnation


def _framed(header: bytes, records: list[Record]) -> Iterator[bytes]:
    yield len(header).to_bytes(_LENGTH_BYTES, "little") + header
    for record in records:
        data = encode_record(record)
        yield len(data).to_bytes(_LENGTH_BYTES, "little") + data


def _cut(pieces: Iterator[bytes], size: int) -> Iterator[bytes]:
    """Rechunk bytes into parts of exactly `size`; the last part may be shorter."""
    buffer = bytearray()
    for piece in pieces:
        buffer += piece
        while len(buffer) >= size:
            yield bytes(buffer[:size])
            del buffer[:size]
    if buffer:
        yield bytes(buffer)


def _frames(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Undo `_framed` and `_cut`, holding no more than one record and one part."""
    buffer = bytearray()
    for part in parts:
        buffer += part
        at = 0
        while len(buffer) - at >= _LENGTH_BYTES:
            end = at + _LENGTH_BYTES + int.from_bytes(buffer[at : at + _LENGTH_BYTES], "little")
            if end > len(buffer):
                break
            yield bytes(buffer[at + _LENGTH_BYTES : end])
            at = end
        del buffer[:at]
    if buffer:
        raise ValueError("a catalog checkpoint that ends inside a record")
