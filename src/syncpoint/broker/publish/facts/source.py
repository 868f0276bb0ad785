"""Publish message sources: what this forwarder received for one topic.

Place: `publish/append` gives it a place in a source, `subscribe/fetch` asks the source for
it. A source is one topic's share of one log. Its offsets are dense; `end` is the next offset to be given away,
`visible` the end of what is persisted. Sources of earlier logs are sealed: they only shrink, and are forgotten once
storage holds nothing of them.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from syncpoint.base.model.errors import ResourceExhausted
from syncpoint.base.model.identity import SOURCE_INDEX_BITS, SOURCE_INDEX_END, id_prefix, log_of, make_source

GONE_MAX = 4096
SOURCES_LEFT = 1 << 20  # a chain continues in another log when its own can open fewer than this
# Of what is stored and in no topic yet: incarnations that no catalog gives out.
STAGING_TOPIC = (1 << 64) - 1  # what pipelines have staged
WAITING_TOPIC = (1 << 64) - 2  # messages that are to be published later
INNER_TOPICS = frozenset((STAGING_TOPIC, WAITING_TOPIC))


class MessagePlace(NamedTuple):
    """Where a message is stored: its source and offset."""

    source: int
    offset: int


@dataclass(slots=True)
class Source:
    """One source. `number` is log counter << 24 | index, `topic` the topic's incarnation.

    In a cluster, `epoch` is that of the topic's assignment it was opened in, `revision` the catalog's when its chain
    was registered for the topic: subscriptions created up to then begin at its first message. `keyed`: no other chain
    takes keyed messages of lower epochs any more, so this one may take those of its own.

    `stated_end`: its end in the newest checkpoint. As long as that is lower, what came last is kept: nothing else
    states where the source ends.
    """

    number: int
    topic: int
    prefix: bytes = b""  # what every message id of the source begins with
    end: int = 0
    visible: int = 0
    sealed: bool = False
    epoch: int = 0
    revision: int = 0
    keyed: bool = False
    stated_end: int = 0


@dataclass(slots=True)
class TopicSources:
    """All sources of one topic incarnation, oldest first."""

    topic: int
    sources: list[Source] = field(default_factory=list)


class SourceTable:
    """Every source this forwarder answers for, by number and by topic."""

    def __init__(self, universe: int, log_counter: int) -> None:
        self.universe = universe
        self.log_counter = log_counter
        self.by_number: dict[int, Source] = {}
        self._by_topic: dict[int, TopicSources] = {}
        self.open: dict[int, Source] = {}  # by topic: its open source
        self._next_index = 0
        self.gone: dict[int, None] = {}  # the newest of those that were forgotten
        self.below = 0  # what recovery was given: a source of a lower number that is not here holds nothing,
        self.unknown: frozenset[int] = frozenset()  # but for these
        self.deleted: set[int] = set()  # these hold nothing either: facts say so that no checkpoint replaces yet

    def of_topic(self, topic: int) -> list[Source]:
        """Sources of a topic incarnation in publish order."""
        found = self._by_topic.get(topic)
        return found.sources if found else []

    def topics(self) -> list[int]:
        """Topic incarnations that have sources."""
        return list(self._by_topic)

    def open_of(self, topic: int) -> Source | None:
        """The topic's open source, if it has one."""
        return self.open.get(topic)

    def open_for(self, topic: int, epoch: int = 0, revision: int = 0) -> tuple[Source, bool]:
        """The topic's source in the current log, and whether it had to be opened now."""
        found = self.open.get(topic)
        if found is not None:
            return found, False
        if self._next_index == SOURCE_INDEX_END:
            raise ResourceExhausted(
                f"This log already has {SOURCE_INDEX_END:,} topics, the maximum. Nothing was stored. Restart the"
                " server,"
                " which begins a new log."
            )
        source = Source(make_source(self.log_counter, self._next_index), topic, epoch=epoch, revision=revision)
        self._next_index += 1
        self.add(source)
        return source, True

    @property
    def next_number(self) -> int:
        """Every source that was ever opened in the chain of logs has a lower number."""
        return (self.log_counter << SOURCE_INDEX_BITS) + self._next_index

    @property
    def nearly_used_up(self) -> bool:
        """Whether the log can open few more. What is idle is sealed and opened again, so any log comes to that."""
        return self._next_index > SOURCE_INDEX_END - SOURCES_LEFT

    def was_deleted(self, number: int) -> bool:
        """Whether a source that is not in the table is known to have held nothing any more, by what is persisted. What
        storage finds of it was about to be deleted when an owner of the log died.
        """
        return number in self.deleted or (number < self.below and number not in self.unknown)

    def seal(self, source: Source) -> None:
        """Close a source to new messages; the topic's next message opens another source."""
        source.sealed = True
        if self.open.get(source.topic) is source:
            del self.open[source.topic]

    def add(self, source: Source) -> None:
        """Enter a source found in a log, or just opened. Idempotent; what was sealed stays sealed."""
        known = self.by_number.get(source.number)
        if known is not None:
            known.keyed = known.keyed or source.keyed
            if source.sealed and not known.sealed:
                self.seal(known)
            return
        source.prefix = id_prefix(self.universe, source.number)
        self.by_number[source.number] = source
        entry = self._by_topic.setdefault(source.topic, TopicSources(source.topic))
        entry.sources.append(source)
        entry.sources.sort(key=lambda s: s.number)
        if log_of(source.number) == self.log_counter and not source.sealed:
            self.open[source.topic] = source
        else:
            source.sealed = True

    def forget(self, source: Source) -> None:
        """A sealed source of which nothing is stored any more leaves the table."""
        self.remove(source)
        self.note_gone(source.number)

    def note_gone(self, number: int) -> None:
        """Nothing of a source that was here is stored any more."""
        self.gone[number] = None
        if len(self.gone) > GONE_MAX:
            del self.gone[next(iter(self.gone))]

    def remove(self, source: Source) -> None:
        """A source leaves the table."""
        del self.by_number[source.number]
        entry = self._by_topic[source.topic]
        entry.sources.remove(source)
        if self.open.get(source.topic) is source:
            del self.open[source.topic]
        if not entry.sources:
            del self._by_topic[source.topic]
