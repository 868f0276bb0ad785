"""What tests with a Kafka broker stand on: records with numbers, where they are, and whether a log has each once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from syncpoint.testing.kafka import kafka_client
from syncpoint.testing.kafka.kafka_client import KafkaRecord
from syncpoint.testing.rigs.log_oracle import Message

KEYS = 7
PATIENCE_S = 600.0  # a busy machine takes minutes to start Spark twice


class Produced(NamedTuple):
    """A record that was written, and where it is."""

    partition: int
    offset: int
    key: str
    value: bytes

    @property
    def place(self) -> tuple[int, int]:
        return self.partition, self.offset


def records(topic: str, numbers: Iterable[int], partition: int | None = None, *, size: int = 0) -> list[KafkaRecord]:
    """A record for each number, by one of a few keys; `partition` None: by the key, else with keys of its own. `size`:
    of its value, at least.
    """
    prefix = "key" if partition is None else f"p{partition}"
    return [
        KafkaRecord(topic, f"{prefix}-{number % KEYS}".encode(), str(number).encode().ljust(size), partition=partition)
        for number in numbers
    ]


def placed(sent: Sequence[KafkaRecord], places: Iterable[tuple[int, int]]) -> list[Produced]:
    """Records that were written there."""
    return [
        Produced(partition, offset, (one.key or b"").decode(), one.value or b"")
        for one, (partition, offset) in zip(sent, places, strict=True)
    ]


def produced(
    address: str, topic: str, numbers: Iterable[int], partition: int | None = None, *, size: int = 0
) -> list[Produced]:
    """Write a record for each number, as `records` makes them; what was written."""
    sent = records(topic, numbers, partition, size=size)
    return placed(sent, kafka_client.produce(address, sent))


def place_of(message: Message) -> tuple[int, int]:
    """Partition and offset of the record that a message was made of."""
    return int(message.attributes["kafka.partition"]), int(message.attributes["kafka.offset"])


def check_once_in_order(log: Sequence[Message], wanted: Iterable[Produced]) -> None:
    """Each record is in the log once, and nothing else; those of a key in their order."""
    wanted = list(wanted)
    assert Counter(map(place_of, log)) == Counter(one.place for one in wanted)
    for key in {one.key for one in wanted}:
        values = [one.data for one in log if one.ordering_key == key]
        assert values == [one.value for one in wanted if one.key == key]
