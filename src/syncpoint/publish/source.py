"""Publish message sources: what this forwarder received for one topic.

Station 5 of a message's life: `publish/append` gives it a place in a source, `subscribe/fetch` asks the source for
it. A source is one topic's share of one log. Its offsets are dense; `end` is the next offset to be given away,
`visible` the end of what is persisted. Sources of earlier logs are sealed: they only shrink, and are forgotten once
storage holds nothing of them.
"""

from dataclasses import dataclass, field

from syncpoint.model.identity import id_prefix, log_of, make_source


@dataclass(slots=True)
class Source:
    """One source. `number` is log counter << 24 | index, `topic` the topic's incarnation."""

    number: int
    topic: int
    prefix: bytes = b""  # what every message id of the source begins with
    end: int = 0
    visible: int = 0
    sealed: bool = False


@dataclass(slots=True)
class TopicSources:
    """All sources of one topic incarnation, oldest first; the last one may be open."""

    topic: int
    sources: list[Source] = field(default_factory=list)
    open: Source | None = None


class SourceTable:
    """Every source this forwarder answers for, by number and by topic."""

    def __init__(self, universe: int, log_counter: int) -> None:
        self.universe = universe
        self.log_counter = log_counter
        self.by_number: dict[int, Source] = {}
        self._by_topic: dict[int, TopicSources] = {}
        self._next_index = 0

    def of_topic(self, topic: int) -> list[Source]:
        """Sources of a topic incarnation in publish order."""
        found = self._by_topic.get(topic)
        return found.sources if found else []

    def open_for(self, topic: int) -> tuple[Source, bool]:
        """The topic's source in the current log, and whether it had to be opened now."""
        entry = self._by_topic.get(topic)
        if entry is not None and entry.open is not None:
            return entry.open, False
        source = Source(make_source(self.log_counter, self._next_index), topic)
        self._next_index += 1
        self.add(source)
        return source, True

    def add(self, source: Source) -> None:
        """Enter a source found in a log, or just opened. Idempotent."""
        if source.number in self.by_number:
            return
        source.prefix = id_prefix(self.universe, source.number)
        self.by_number[source.number] = source
        entry = self._by_topic.setdefault(source.topic, TopicSources(source.topic))
        entry.sources.append(source)
        entry.sources.sort(key=lambda s: s.number)
        if log_of(source.number) == self.log_counter:
            entry.open = source
        else:
            source.sealed = True

    def forget(self, source: Source) -> None:
        """A sealed source of which nothing is stored any more leaves the table."""
        del self.by_number[source.number]
        entry = self._by_topic[source.topic]
        entry.sources.remove(source)
        if not entry.sources:
            del self._by_topic[source.topic]
