"""Subscription view: the sources of one subscription, as the chains have reported them.

Machine beside `gather`. A view that is held may be delivered from. One that is not held but has a grant is in doubt:
the grant may come back. One without a grant is somebody else's.
"""

import math
from collections.abc import Collection
from typing import Any

from syncpoint.base.model.delivery import Listener, SourceView
from syncpoint.catalog.metadata.records import Subscription

PAST_MAX = 1000


class SubscriptionView:
    """A subscription as its subscribe forwarder sees it."""

    def __init__(self, record: Subscription, listener: Listener) -> None:
        self.record, self.listener = record, listener
        self.subscription, self.topic = record.incarnation, record.topic_incarnation
        self.generation = record.generation
        self.wanted = False
        self.sources: dict[int, SourceView] = {}
        self._past: dict[int, SourceView] = {}  # done, and delivered here at last: acknowledgements may be under way
        # Chains that have named all their sources, whoever owned them then -> below which epoch there will be no more.
        self.answered: dict[int, float] = {}
        self.registered: frozenset[int] | None = None  # chains of the topic by a look into the metadata; None: to do
        self.reading = False
        self.newest_epoch = 0

    @property
    def strict(self) -> bool:
        """Whether no message may be with two forwarders at once."""
        return self.record.exactly_once or self.record.ordered

    def holds(self, source: int) -> bool:
        view = self.sources.get(source)
        return view is not None and view.held

    def acknowledging(self, source: int) -> SourceView | None:
        """What is known of a source for acknowledgements: also of one that is done."""
        return self.sources.get(source) or self._past.get(source)

    def _forget(self, source: int) -> None:
        view = self.sources.pop(source, None)
        if view is not None and view.grant:
            self._past[source] = view
            if len(self._past) > PAST_MAX:
                del self._past[next(iter(self._past))]

    def grants_of(self, chains: Collection[int]) -> list[tuple[int, int]]:
        """Sources of these chains and our grants for them, in doubt or not."""
        return [(view.source, view.grant) for view in self.sources.values() if view.grant and view.chain in chains]

    def named(self, what: Any) -> tuple[list[SourceView], list[int], bool]:
        """Take in a message Sources: views for the listener, sources that are not ours any more, and whether an
        epoch was named that is newer than all before: then there may be chains that we do not know of yet.
        """
        chain, views, lost = what.chain, [], []
        named = set()
        newest = self.newest_epoch
        for one in what.sources:
            held = one.grant != 0
            view = SourceView(
                one.number, one.begin, one.sealed, one.epoch, one.chain or chain, one.grant, held or one.done, one.done
            )
            named.add(one.number)
            newest = max(newest, one.epoch)
            before = self.sources.get(one.number)
            if before is not None and before.grant and not held and not one.done:
                lost.append(one.number)
            if one.done:
                self._forget(one.number)
            else:
                self.sources[one.number] = view
            views.append(view)
        if what.all:
            for view in [v for v in self.sources.values() if v.chain == chain and v.source not in named]:
                self._forget(view.source)
                views.append(view._replace(sealed=True, held=True, done=True))
            epoch = what.epoch if what.HasField("epoch") else math.inf  # an earlier version does not say
            self.answered[chain] = max(epoch, self.answered.get(chain, 0))
        newer, self.newest_epoch = newest > self.newest_epoch, newest
        return views, lost, newer

    def revoked(self, source: int, grant: int) -> bool:
        """A grant has ended. False if it was not ours any more."""
        view = self.sources.get(source)
        if view is None or view.grant != grant:
            return False
        self.sources[source] = view._replace(held=False, grant=0)
        return True

    def doubt(self, chains: Collection[int]) -> list[SourceView]:
        """The grants of these chains are in doubt; returns the views that are held no longer."""
        changed = [view._replace(held=False) for view in self.sources.values() if view.held and view.chain in chains]
        for view in changed:
            self.sources[view.source] = view
        return changed

    def renew(self, generation: int) -> None:
        """A seek: everything is named anew."""
        self.generation = generation
        self.sources.clear()
        self._past.clear()
        self.answered.clear()
