"""Needs: a version that rises whenever messages that nobody needed may be needed again.

Place: beside `retention`, which judges what is needed. Storage asks it entry by entry, a segment over several steps,
and deletes a while after: what comes up in between (a seek, a longer retention, a snapshot, a reader of the past) may
need what was judged before.
Promise: `version` rises in the same turn; storage drops what it has judged under an earlier one, of the topics that the
change was about.
"""

from __future__ import annotations

from collections.abc import Collection

from syncpoint.catalog.metadata.records import CatalogChange, ChangeOp, Setting, Subscription, Topic

TOPICS_MAX = 1000  # remembered one by one
WITHOUT_END = 1 << 62  # a time to live


class Needs:
    """Version the changes to what must be kept, by topic."""

    def __init__(self) -> None:
        self.version = 0
        self._everything = 0  # the last version that was about no topic in particular
        self._topics: dict[int, int] = {}  # by topic: the last version that was about it
        self._kept: dict[int, tuple[int, ...]] = {}  # by incarnation: how much is kept; of records that were seen

    def more(self, topic: int | None = None) -> None:
        """Something is needed now that may not have been needed before: of this topic, or of any."""
        self.version += 1
        if topic is not None:
            self._topics[topic] = self.version
        if topic is None or len(self._topics) > TOPICS_MAX:
            self._everything = self.version
            self._topics.clear()

    def since(self, version: int) -> Collection[int] | None:
        """The topics of which something may be needed that was not at this version; None: of any."""
        if self._everything > version:
            return None
        return [topic for topic, last in self._topics.items() if last > version]

    def changed(self, change: CatalogChange, *, new: bool) -> None:
        """A record of a topic of which something is stored has changed. `new`: nothing was judged by it yet, and what
        is older than it concerns it not.
        """
        record = change.record
        if isinstance(record, Setting):
            return
        if change.op is ChangeOp.DELETE:
            self._kept.pop(record.incarnation, None)
            return
        if isinstance(record, Topic):
            kept: tuple[int, ...] = (record.retention_s, record.options.default_ttl_s or WITHOUT_END)
        elif isinstance(record, Subscription):
            options = record.options
            live = WITHOUT_END if options.dead_letter_expired and record.dead_letter else options.ttl_s or WITHOUT_END
            kept = (0, 0, 0) if record.detached else (record.retention_s, int(record.retain_acked), live)
        else:
            kept = (record.expire_ns,)
        before = self._kept.get(record.incarnation)
        self._kept[record.incarnation] = kept
        if before is None and new:
            return
        if before is None or any(now > then for now, then in zip(kept, before, strict=True)):
            self.more(record.incarnation if isinstance(record, Topic) else record.topic_incarnation)
