"""What operators do with the keys of sealed messages: look at them, rotate, wrap anew, and forget those of lost topics.

Place: beside `data_keys`, over the same records in the metadata; used by `syncpoint keys` and, for the keys of deleted
topics, by the proxies themselves.
Promise: no key that any stored message may need is removed: only those of topics that are deleted, and of which no
chain holds anything (`open/TOPIC/` is empty; chains register before they store, see `control.registration`), and that
no dead letter of another topic is sealed with. What may be a topic that was lost with the metadata keeps its keys: a
chain that holds something of it may not have been opened since. Nothing here returns, prints or logs a key, wrapped
or not.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from syncpoint.base.model.errors import SyncpointError
from syncpoint.base.runtime.periodic import Periodic, about
from syncpoint.base.runtime.random import Random
from syncpoint.catalog.metadata.contract import Delete, KeyValue, StoreError, unchanged
from syncpoint.catalog.metadata.layout import DATA_KEYS, LENT_KEYS, RECORDS, TOPIC_KEYS
from syncpoint.catalog.metadata.records import Topic, decode_record
from syncpoint.catalog.metadata.restored_topics import LostTopics, lost_in
from syncpoint.catalog.metadata.store_client import SharedStore, read_all
from syncpoint.cluster.control.registration import registered_chains
from syncpoint.front.proxy.data_keys import TopicKeys

CLEAN_S = 600.0

log = logging.getLogger(__name__)


class KeyInfo(NamedTuple):
    """One data key. `topic`: its incarnation; `kek`: the id of the key-encryption key it is wrapped under."""

    number: int
    topic: int
    kek: str
    created_ns: int
    current: bool


async def listed(store: SharedStore) -> list[KeyInfo]:
    """All data keys, by number. Raises the store's errors."""
    data, _ = await read_all(store, DATA_KEYS)
    topics, _ = await read_all(store, TOPIC_KEYS)
    current = {TOPIC_KEYS.number(item.key): int(json.loads(item.value)["number"]) for item in topics}
    return sorted(_info(item, current) for item in data)


def _info(item: KeyValue, current: dict[int, int]) -> KeyInfo:
    values, number = json.loads(item.value), DATA_KEYS.number(item.key)
    topic = int(values["topic"])
    return KeyInfo(number, topic, str(values["kek"]), int(values["created_ns"]), current.get(topic) == number)


async def topics_now(store: SharedStore) -> dict[int, str]:
    """Names of the topics that exist, by incarnation, as the store has them at this moment. Raises its errors."""
    items, _ = await read_all(store, RECORDS)
    records = (decode_record(item.value) for item in items)
    return {record.incarnation: record.name for record in records if isinstance(record, Topic)}


async def rotate(keys: TopicKeys, topics: Sequence[int]) -> int:
    """A new data key for each of the topics, for messages from now on; returns how many. Raises `SyncpointError`;
    those before it in the sequence have theirs then.
    """
    for topic in topics:
        await keys.rotate(topic)
    return len(topics)


def needed(keys: Sequence[KeyInfo]) -> Counter[str]:
    """How many data keys are wrapped under each key-encryption key."""
    return Counter(one.kek for one in keys)


async def remove_gone(store: SharedStore, *, exists: Callable[[int], bool] = lambda topic: False) -> int:
    """Remove the keys of deleted topics of which nothing is stored; returns how many keys. Raises the store's errors.

    `exists`: what is surely there need not be looked up. The order matters: keys are read first, then topics, then
    chains, then what was lent. So a key of a topic that was made in the meantime is not among them, a chain that
    registers later finds the topic deleted and stores nothing, and a message leaves its topic as a dead letter only
    after its key was lent.
    """
    found = await listed(store)
    suspects = {one.topic for one in found if not exists(one.topic)}
    if not suspects:
        return 0
    living, lost = await topics_now(store), await lost_in(store)
    removed = 0
    for topic in sorted(suspects - living.keys()):
        if lost.may_be(topic) or await registered_chains(store, topic):
            continue
        await _remove(store, TOPIC_KEYS.key(topic))
        for one in found:
            if one.topic == topic and not await _is_lent(store, one.number, living, lost):
                removed += await _remove(store, DATA_KEYS.key(one.number))
    if removed:
        log.info("%d keys of deleted topics are removed: nothing of those topics is stored", removed)
    return removed


async def _is_lent(store: SharedStore, number: int, living: Mapping[int, str], lost: LostTopics) -> bool:
    """Whether another topic may have messages under a key. What was lent to topics that are gone is forgotten."""
    prefix = LENT_KEYS.under(number)
    lent, _ = await read_all(store, prefix)
    for item in lent:
        topic = prefix.number(item.key)
        if topic in living or lost.may_be(topic) or await registered_chains(store, topic):
            return True
    for item in lent:
        await _remove(store, item.key)
    return False


async def _remove(store: SharedStore, key: str) -> bool:
    known = await store.get(key)
    return known is not None and (await store.txn([unchanged(key, known.revision)], [Delete(key)])).ok


class KeyCleaner(Periodic):
    """Removes keys of deleted topics now and then. `mine()`: whether it is this process's turn."""

    def __init__(
        self, store: SharedStore, exists: Callable[[int], bool], mine: Callable[[], bool], random: Random
    ) -> None:
        self._store, self._exists, self._mine = store, exists, mine
        pauses, expected = about(CLEAN_S, random), (SyncpointError, StoreError)
        super().__init__(self._clean, pauses, expected, "keys of deleted topics are not removed yet")

    async def _clean(self) -> None:
        if self._mine():
            await remove_gone(self._store, exists=self._exists)
