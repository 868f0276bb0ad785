"""Sources: all publish message sources of one subscription, whose turn it is, and what must come first.

Place: above `fetch`. Sources without order take turns, so one subscriber, even one unary pull after the other, is
served from all of them. With ordering keys a source waits until those before it are out of the way: sealed, and either
read here to the end (then the keys themselves keep the order) or, where somebody else delivers from them, acknowledged
to the end. A source comes after all of a lower epoch and after those of its chain with a lower number; until every
source is known nothing is read at all.

With rules, each lane of a source is read by itself, and a source is read to its end when all its lanes are. With
ordering keys a lane comes after those that had stopped when it began, once they are read to their end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from syncpoint.base.kernel.leases import OFFSET_END
from syncpoint.base.model.delivery import Batch, SourceView
from syncpoint.base.model.lanes import in_lane
from syncpoint.broker.subscribe.fetch import FetchCursor

_Key = tuple[int, int]  # source and lane
SOURCES_AHEAD = 4  # sources read ahead at once: bounds memory after many restarts


class SubscriptionSources:
    """The sources of a subscription, with their cursors. `read_on` requests more messages for a cursor."""

    def __init__(
        self,
        read_on: Callable[[FetchCursor], None],
        *,
        ordered: bool,
        lanes: Sequence[int] | None = None,
        before: Mapping[int, Sequence[int]] | None = None,
    ) -> None:
        """`lanes`: those a subscription with rules has; `before`: those that come before one in the order of keys."""
        self._read_on, self._ordered = read_on, ordered
        self._ruled, self._lanes, self._before = lanes is not None, lanes or (0,), before or {}
        self._cursors: dict[_Key, FetchCursor] = {}  # in the order of their turns
        self._elsewhere: dict[int, SourceView] = {}  # known, delivered by somebody else, not done
        self._held: dict[int, SourceView] = {}  # as they were last named, also those that were read to their end
        self._resting: dict[_Key, FetchCursor] = {}  # of sources whose grant is in doubt
        self._eligible: list[_Key] | None = None
        self.complete = not ordered
        self.known = False  # every chain has named its sources

    @property
    def looking(self) -> bool:
        """Whether it is not known yet what waits: a chain has not named its sources, or a source is to be read."""
        return not self.known or any(
            one.asking or one.wants_more for one in map(self._cursors.get, self._turns()) if one
        )

    @property
    def quiet(self) -> bool:
        """Whether there is nothing to hand out, to ask for or to leave behind: all was read, and nothing came since."""
        for one in self._cursors.values():  # noqa: SIM110 - a generator costs more than the one source there is
            if one.batches or one.sealed or not (one.idle or one.asking):
                return False
        return True

    @property
    def waits(self) -> bool:
        """Whether keys wait for sources that come before theirs; it pays to ask how far those are."""
        return self._ordered and (bool(self._elsewhere) or len(self._turns()) < len(self._cursors))

    # -- what exists ---------------------------------------------------------------------------------------------------

    def named(self, view: SourceView) -> None:
        """A source may be delivered from here, or is delivered elsewhere."""
        self._eligible = None
        self._elsewhere.pop(view.source, None)
        before = self._held.get(view.source)
        if view.done:
            self._held.pop(view.source, None)
            self._drop(view.source)
        elif not view.held:
            self._elsewhere[view.source] = view
            for key in self._keys(view.source):
                cursor = self._cursors.pop(key, None) or self._resting.pop(key, None)
                if cursor is not None and view.grant:
                    self._resting[key] = cursor  # what was read is not read again: it may be acknowledged by then
        else:
            self._held[view.source] = view
            for key in self._keys(view.source):
                cursor = self._cursors.get(key) or self._resting.pop(key, None)
                if cursor is not None:
                    self._cursors[key] = cursor
                    cursor.sealed = cursor.sealed or view.sealed
                    cursor.named()
                elif before is None or before.grant != view.grant:
                    self._cursors[key] = self._cursor(view, key)

    def _keys(self, source: int) -> Iterator[_Key]:
        return ((source, lane) for lane in self._lanes)

    def _drop(self, source: int) -> None:
        for key in self._keys(source):
            self._cursors.pop(key, None)
            self._resting.pop(key, None)

    def _cursor(self, view: SourceView, key: _Key) -> FetchCursor:
        """Create a cursor. For copies made by rules, only the chain knows the place of the first copy."""
        begin = in_lane(key[1], 0) if self._ruled else view.begin
        return FetchCursor(view.source, begin, sealed=view.sealed, epoch=view.epoch, chain=view.chain)

    def set_lanes(self, lanes: Sequence[int], before: Mapping[int, Sequence[int]]) -> None:
        """The subscription has these lanes from now on: those it had that are not done with, and new ones. `before`: as
        at the beginning.
        """
        known, self._ruled, self._lanes, self._before = self._lanes, True, tuple(lanes), before
        self._eligible = None
        for cursors in (self._cursors, self._resting):
            for key in [one for one in cursors if one[1] not in self._lanes]:
                del cursors[key]
        for view in self._held.values():
            to = self._cursors if self.holds(view.source) else self._resting
            for key in self._keys(view.source):
                if key[1] not in known:
                    to[key] = self._cursor(view, key)

    def holds(self, source: int) -> bool:
        """Whether it may be delivered from here now: it was named so, and is not in doubt."""
        return source in self._held and source not in self._elsewhere

    def data_came(self, source: int) -> None:
        for key in self._keys(source):
            cursor = self._cursors.get(key)
            if cursor is not None:
                cursor.data_came()

    def forget(self, source: int) -> None:
        """Somebody else delivers from it from now on; how far it is will be learned."""
        self._eligible = None
        self._drop(source)
        view = self._held.pop(source, None)
        if view is not None and self._ordered:
            self._elsewhere[source] = view._replace(held=False)

    def after(self, source: int) -> list[int]:
        """Sources held here that come after this one in the order of keys."""
        view = self._held.get(source) or self._elsewhere.get(source)
        if view is None or not self._ordered:
            return []
        return [
            one.source
            for one in self._held.values()
            if one.epoch > view.epoch or (one.chain == view.chain and one.source > view.source)
        ]

    def begin_again(self, source: int) -> None:
        """Read a source anew, once it is named again: what comes before it is delivered again first."""
        self._eligible = None
        self._drop(source)
        view = self._held.pop(source, None)
        if view is not None:
            self._elsewhere[source] = view  # it has to come before others still

    def read_again(self) -> None:
        """Let go of what was read and not lent: another site may have had it acknowledged since."""
        for cursor in self.cursors():
            cursor.read_again()

    def from_the_beginning(self, slots: int) -> None:
        """Read all sources from their first unacknowledged messages again, also those that were read to their end: of
        what was dealt with before only the keys of these slots.
        """
        self._eligible = None
        for view in self._held.values():
            to = self._cursors if self.holds(view.source) else self._resting
            for key in self._keys(view.source):
                known = self._cursors.get(key) or self._resting.get(key)
                if known is None:
                    known = to[key] = self._cursor(view, key)
                    known.again_to = OFFSET_END
                known.begin_again(self._cursor(view, key).begin, slots)

    def clear(self) -> None:
        self._cursors.clear()
        self._resting.clear()
        self._elsewhere.clear()
        self._held.clear()
        self._eligible = None
        self.complete = not self._ordered

    # -- whose turn it is ----------------------------------------------------------------------------------------------

    def next_ready(self) -> tuple[Batch, FetchCursor] | None:
        """The next batch that was read, of the source whose turn it is; asks for more where nothing is."""
        again = True
        while again:
            again = False
            for key in self._turns():
                cursor = self._cursors[key]
                if not (cursor.idle or cursor.asking or cursor.batches):
                    self._read_on(cursor)
                head = cursor.batches[0] if cursor.batches else None
                if head is not None and self._comes_later(key):
                    again = again or self._seal_before(key)
                elif head is not None:
                    self._turn_over(key)
                    return head, cursor
                if cursor.sealed and cursor.drained:
                    del self._cursors[key]
                    self._eligible = None
                    again = self._ordered  # those behind it may begin
        return None

    def _before_of(self, key: _Key) -> list[FetchCursor]:
        found = (self._cursors.get((key[0], lane)) for lane in self._before.get(key[1], ()))
        return [one for one in found if one is not None]

    def _comes_later(self, key: _Key) -> bool:
        """Whether lanes that come before one are not read to their end."""
        return self._ordered and bool(self._before_of(key))

    def _seal_before(self, key: _Key) -> bool:
        """Something of a lane was read, so the chain knows where those before it have stopped: what it has of them
        when it is asked once more is all. Whether one is new to that.
        """
        open_ones = [one for one in self._before_of(key) if not one.sealed]
        for one in open_ones:
            one.sealed = True
            one.data_came()
        return bool(open_ones)

    def _turn_over(self, key: _Key) -> None:
        """The others come first next time."""
        if len(self._cursors) > 1:
            self._cursors[key] = self._cursors.pop(key)
            if self._eligible is not None:
                self._eligible.remove(key)
                self._eligible.append(key)

    def ask_ahead(self) -> None:
        """Read ahead, so that the next look finds something."""
        ahead = 0
        for key in self._turns():
            cursor = self._cursors[key]
            if not (cursor.idle or cursor.asking or cursor.batches):  # it wants more
                self._read_on(cursor)
            ahead += bool(cursor.batches or cursor.asking)
            if ahead >= SOURCES_AHEAD:
                break

    def cursors(self) -> list[FetchCursor]:
        """All that wait here."""
        return [*self._cursors.values(), *self._resting.values()]

    def ready(self) -> int:
        """Messages that were read and wait."""
        return sum(b.end - b.begin for cursor in self._cursors.values() for b in cursor.batches)

    def _turns(self) -> list[_Key]:
        if not self._ordered:
            return list(self._cursors)
        if not self.complete:
            return []
        if self._eligible is None:
            self._eligible = list(self._first())
        return list(self._eligible)

    def _first(self) -> Iterator[_Key]:
        """Sources that nothing comes before."""
        places = [(c.epoch, c.chain, c.source) for c in self._cursors.values()]
        places += [(view.epoch, view.chain, view.source) for view in self._elsewhere.values()]
        lowest = min((epoch for epoch, _, _ in places), default=0)
        first_of: dict[int, int] = {}
        for _, chain, source in places:
            first_of[chain] = min(first_of.get(chain, source), source)
        for key, cursor in self._cursors.items():
            if cursor.epoch == lowest and first_of[cursor.chain] == cursor.source:
                yield key
