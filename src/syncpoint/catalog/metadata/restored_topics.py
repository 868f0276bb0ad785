"""What a restore has made unknown: topics of which disks may hold messages, and the metadata know nothing.

Place: written by `backup.restore`, as a setting of the catalog; asked by `publish.retention` before messages of an
unknown topic are given up, and by `proxy.key_admin` before its keys are; changed by an operator who adopts or deletes
what was found (`programs.clusters.orphans`).
Promise: messages of a topic that was made after the backup are never taken for those of a deleted topic. A source names
at which revision of the catalog it was opened. One opened between the backup's revision and the one at which the
restored catalog began belongs to a topic that the backup knows, or to a lost one.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from syncpoint.base.kernel.acks import AckSet
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.metadata.catalog_replica import record_key
from syncpoint.catalog.metadata.records import Setting, decode_record
from syncpoint.catalog.metadata.store_client import SharedStore

NAME = "lost"


class RevisionGap(NamedTuple):
    """Revisions of the catalog that one restore has made unknown: above the backup's, below where it went on. `known`:
    the topics that the backup had.
    """

    above: int
    below: int
    known: AckSet


class LostTopicDecision(NamedTuple):
    """What an operator did with a lost topic. `what`: "adopted" or "deleted"; `name`: that of the topic it became."""

    topic: int
    what: str
    name: str
    messages: int
    user: str
    host: str
    time_ns: int


class LostTopics(NamedTuple):
    """All of it. Nothing, where nothing was ever restored."""

    gaps: tuple[RevisionGap, ...] = ()
    decisions: Mapping[int, LostTopicDecision] = {}

    def keeps(self, topic: int, revision: int) -> bool:
        """Whether a topic that the catalog does not know is a lost one, of which nobody has decided yet. `revision`:
        that of the catalog when a source of it was opened.
        """
        return topic not in self.decisions and any(
            gap.above < revision < gap.below and not gap.known.contains(topic) for gap in self.gaps
        )

    def may_be(self, topic: int) -> bool:
        """Whether a topic that the catalog does not know may be a lost one, as far as its number shows: everything
        that was given out before the last restore, and that the backup did not have. For who has no source to look at.
        """
        return topic not in self.decisions and any(
            topic < gap.below and not gap.known.contains(topic) for gap in self.gaps
        )

    def with_gap(self, above: int, below: int, known: Iterable[int]) -> LostTopics:
        """One more restore."""
        topics = AckSet()
        for topic in known:
            topics.add(topic, topic + 1)
        return self._replace(gaps=(*self.gaps, RevisionGap(above, below, topics)))

    def decided(self, decision: LostTopicDecision) -> LostTopics:
        """What was decided is kept no more."""
        return self._replace(decisions={**self.decisions, decision.topic: decision})

    def setting(self) -> Setting:
        """The record that holds it."""
        values: dict[str, Any] = {
            "gaps": [[gap.above, gap.below, base64.b64encode(gap.known.encode()).decode()] for gap in self.gaps],
            "decisions": [list(one) for one in self.decisions.values()],
        }
        return Setting(NAME, json.dumps(values, separators=(",", ":")).encode())


NOTHING = LostTopics()


@lru_cache(maxsize=8)
def decode(value: bytes) -> LostTopics:
    """Raises `ValueError` for anything else."""
    found = json.loads(value)
    gaps = (RevisionGap(above, below, AckSet.decode(base64.b64decode(known))) for above, below, known in found["gaps"])
    decisions = (LostTopicDecision(*one) for one in found["decisions"])
    return LostTopics(tuple(gaps), {one.topic: one for one in decisions})


async def lost_in(store: SharedStore) -> LostTopics:
    """What the metadata say is lost now. Raises the store's errors."""
    found = await store.get(record_key(Setting(NAME)))
    record = None if found is None else decode_record(found.value)
    return decode(record.value) if isinstance(record, Setting) else NOTHING


def lost_of(catalog: Catalog) -> LostTopics:
    """What is lost according to the catalog."""
    value = catalog.setting(NAME)
    return NOTHING if value is None else decode(value)
