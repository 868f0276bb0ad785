"""Kafka's side of tests and examples: topics made, records written, and read back, by a client that is none of Spark's.

Needs the package kafka-python.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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


def create_topics(address: str, partitions: Mapping[str, int]) -> None:
    """Make topics with so many partitions."""
    client = KafkaAdminClient(bootstrap_servers=address)
    try:
        client.create_topics([NewTopic(name, count, 1) for name, count in partitions.items()])
    finally:
        client.close()


def produce(address: str, records: Iterable[KafkaRecord]) -> list[tuple[int, int]]:
    """Write records, in their order; where each of them is then: partition and offset."""
    producer = KafkaProducer(bootstrap_servers=address, linger_ms=5)
    try:
        sent = [
            producer.send(one.topic, key=one.key, value=one.value, headers=list(one.headers), partition=one.partition)
            for one in records
        ]
        places = [future.get(ANSWER_S) for future in sent]
    finally:
        producer.close()
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
