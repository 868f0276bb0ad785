"""When subscriptions of one node were last in use, kept in the catalog so that a restart does not begin the time anew.

Place: under `control.expiry`, which deletes what nobody uses. Settings of the catalog hold it, which are written
once an hour and at an orderly end.
A time that has surely been reached is in the log from before its first message on, again every second in which
something was published, and in every checkpoint: where the next life's clock begins, so that a wall clock that is wrong
then is not believed, however young the log is.
Promise: a time of use is never earlier than the last use less `NOTE_S`, which `idle_s` grants on top.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import TypeVar

from syncpoint.broker.publish.facts.records import ExtensionNumber, encode_extension
from syncpoint.broker.publish.facts.recovery import RecoveredState
from syncpoint.broker.publish.facts.source import Source
from syncpoint.broker.publish.intake.forwarder import PublishForwarder
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.metadata.records import CatalogChange, Setting, Subscription
from syncpoint.cluster.control.plane import ControlPlane
from syncpoint.log.storage.record import EntryKind

USES = "subscription-uses"
"""Of the first `PART` subscriptions; later ones stand in `subscription-uses:1` and so on."""
PART = 5_000
TURN = 1_000
"""Subscriptions in one turn of the loop, a millisecond."""
NUMBER = ExtensionNumber.USES
NOTE_S = 3_600.0
FIRST_S = 300.0  # the first time ever, and what an orderly end does not note again
REACHED_S = 1.0  # between two times that were reached, where something is published
WAITING_S = 600.0  # and where messages wait for their time; elsewhere the hourly note does
_NS = 1_000_000_000
_Thing = TypeVar("_Thing")


def anchor_ns(memory: RecoveredState) -> int:
    """A time that an earlier life had surely reached, 0: none is known."""
    return max(_stored(memory.catalog)[0], *map(int, memory.extensions.get(NUMBER, [])), 0)


class Uses:
    """An extension of the log, and `control.expiry.LastUses`. `used`: subscription -> monotonic time of its last use in
    this life, kept by `subscribe.subscribe_forwarder`.
    """

    number = NUMBER

    def __init__(self, control: ControlPlane, publish: PublishForwarder, used: dict[int, float]) -> None:
        self._catalog, self._commit, self._used = control.catalog, control.commit, used
        self._log, self._clock, self._scheduled = publish.commit, publish.clock, publish.scheduled
        self._began_ns, self._anchor_ns = self._clock.sure_ns(), anchor_ns(publish.memory)
        reached_ns, self._before = _stored(control.catalog)
        self._noted_at = self._reached_at = self._clock.monotonic()
        self._pause_s = NOTE_S if reached_ns else FIRST_S
        self._newest_ns = self._log.newest_ns
        self._write_reached()

    def idle_s(self, record: Subscription) -> float:
        """For how long nobody has used it, at least."""
        now_ns = self._clock.sure_ns()
        touched_ns = record.touched_ns or self._began_ns
        age_s = (now_ns - touched_ns) / _NS
        used = self._used.get(record.incarnation)
        if used is not None:
            return min(age_s, self._clock.monotonic() - used)
        if touched_ns >= self._began_ns:
            return age_s
        # Of an earlier life: the last hour of that may not have been noted.
        return (now_ns - max(touched_ns, self._before.get(record.incarnation, 0))) / _NS - NOTE_S

    def tick(self) -> None:
        """Called every `REACHED_S`."""
        if self._log.failed is not None:
            return
        now, newest_ns = self._clock.monotonic(), self._log.newest_ns
        if newest_ns != self._newest_ns or (len(self._scheduled) and now >= self._reached_at + WAITING_S):
            self._reached_at, self._newest_ns = now, newest_ns
            self._write_reached()

    def _write_reached(self) -> None:
        for fact in self.facts():
            self._log.append_fact(EntryKind.LEDGER, encode_extension(NUMBER, fact))

    def facts(self) -> Iterator[bytes]:
        """Yield the time that was reached, which never decreases, even if the wall clock is late."""
        yield b"%d" % max(self._clock.sure_ns(), self._anchor_ns)

    def forgotten(self, source: Source) -> None:
        """No source is known here."""

    async def begin(self) -> None:
        pass

    async def end(self) -> None:
        """Forget deleted subscriptions, and record uses again where that is due."""
        async for part in _in_turns([*self._used]):
            for incarnation in part:
                if self._catalog.subscription_by_incarnation(incarnation) is None:
                    self._used.pop(incarnation, None)
        if self._clock.monotonic() >= self._noted_at + self._pause_s:
            await self.note()

    @property
    def has_news(self) -> bool:
        """Whether an orderly end should note them once more."""
        return self._clock.monotonic() >= self._noted_at + FIRST_S or any(
            used > self._noted_at for used in self._used.values()
        )

    async def note(self) -> None:
        """Persist what is known now. Raises `SyncpointError`."""
        now, now_ns = self._clock.monotonic(), self._clock.sure_ns()
        before, known = dict[int, int](), self._catalog.subscription_by_incarnation
        used: dict[int, float | None] = {**dict.fromkeys(self._before), **self._used}
        async for some in _in_turns([*used.items()]):
            before |= {
                one: self._before[one] if at is None else now_ns - round((now - at) * _NS)
                for one, at in some
                if known(one)
            }
        self._before = before
        times, names = [*before.items()], list[str]()
        for at in range(0, max(len(times), 1), PART):  # what moves goes to a part that is written earlier
            pieces = list[str]()
            async for some in _in_turns(times[at : at + PART]):
                pieces += [f'"{one}":{used_ns}' for one, used_ns in some]
            value = f'{{"reached_ns":{now_ns},"used_ns":{{{",".join(pieces)}}}}}'
            names.append(f"{USES}:{len(names)}" if names else USES)
            await self._commit([CatalogChange.put(Setting(names[-1], value.encode()))])
        for name in sorted({*self._catalog.settings_named(USES)} - {*names}):
            await self._commit([CatalogChange.delete(Setting(name))])
        self._noted_at, self._pause_s = now, NOTE_S


async def _in_turns(things: Sequence[_Thing]) -> AsyncIterator[Sequence[_Thing]]:
    """All of them, a part in each turn of the loop, so that others have theirs in between."""
    for at in range(0, len(things), TURN):
        if at:
            await asyncio.sleep(0)
        yield things[at : at + TURN]


def noted_uses(catalog: Catalog) -> dict[int, int]:
    """When subscriptions were last in use, by incarnation, as far as it was noted."""
    return _stored(catalog)[1]


def _stored(catalog: Catalog) -> tuple[int, dict[int, int]]:
    reached_ns, used_ns = 0, dict[int, int]()
    for name in catalog.settings_named(USES):
        values = json.loads(catalog.setting(name) or b"")
        reached_ns = max(reached_ns, int(values["reached_ns"]))
        for one, at in values["used_ns"].items():
            used_ns[int(one)] = max(used_ns.get(int(one), 0), int(at))
    return reached_ns, used_ns
