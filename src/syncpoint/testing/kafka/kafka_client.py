"""Kafka's side of tests and examples: topics made and changed, records written, deleted, and read back, by a client
that is none of Spark's.

Needs the package kafka-python.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic

ANSWER_S = 30


@dataclass(frozen=True)
class KafkaRecord:
    """What is written to a topic. `partition` None: by the key."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes]] = ()
    partition: int | None = None


@contextmanager
def _admin(address: str) -> Iterator[Any]:
    client = KafkaAdminClient(bootstrap_servers=address)
    try:
        yield client
    finally:
        client.close()


def create_topics(address: str, partitions: Mapping[str, int], settings: Mapping[str, str] | None = None) -> None:
    """Make topics with this number of partitions and these settings."""
    with _admin(address) as client:
        client.create_topics(
            [NewTopic(name, count, 1, topic_configs=dict(settings or {})) for name, count in partitions.items()]
        )


def add_partitions(address: str, topic: str, total: int) -> None:
    """Raise the number of a topic's partitions."""
    with _admin(address) as client:
        client.create_partitions({topic: total})


def delete_before(address: str, topic: str, offsets: Mapping[int, int]) -> None:
    """Have the broker delete all records below an offset, by partition."""
    with _admin(address) as client:
        client.delete_records({TopicPartition(topic, number): offset for number, offset in offsets.items()})


def produce(address: str, records: Iterable[KafkaRecord]) -> list[tuple[int, int]]:
    """Write records, in their order; where each of them is then: partition and offset."""
    producer = KafkaProducer(bootstrap_servers=address, linger_ms=5)
    try:
        return _sent(producer, records)
    finally:
        producer.close()


def produce_in_transaction(
    address: str, records: Iterable[KafkaRecord], *, committed: bool = True
) -> list[tuple[int, int]]:
    """Produce records in one transaction, which is committed or aborted; returns their (partition, offset)."""
    producer = KafkaProducer(bootstrap_servers=address, linger_ms=5, transactional_id="writer")
    try:
        producer.init_transactions()
        producer.begin_transaction()
        places = _sent(producer, records)
        if committed:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
        return places
    finally:
        producer.close()


def _sent(producer: Any, records: Iterable[KafkaRecord]) -> list[tuple[int, int]]:
    sent = [
        producer.send(one.topic, key=one.key, value=one.value, headers=list(one.headers), partition=one.partition)
        for one in records
    ]
    places = [future.get(ANSWER_S) for future in sent]
    return [(place.partition, place.offset) for place in places]


def records_of(address: str, topic: str) -> list[Any]:
    """All records of a topic, partition by partition in their order."""
    found: list[Any] = []
    consumer = KafkaConsumer(bootstrap_servers=address, auto_offset_reset="earliest", enable_auto_commit=False)
    try:
        places = [TopicPartition(topic, one) for one in consumer.partitions_for_topic(topic) or ()]
        consumer.assign(places)
        ends = consumer.end_offsets(places)
        while any(consumer.position(place) < ends[place] for place in places):
            for some in consumer.poll(1000).values():
                found += some
    finally:
        consumer.close()
    return sorted(found, key=lambda one: (one.partition, one.offset))
