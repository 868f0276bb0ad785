"""Where messages of a topic may be stored, and through which regions they may pass.

Place: asked before anything is assigned, and by proxies before anything is sent on. Pure.
Promise: a chain fits a topic only if every disk of it lies in a region the topic allows. Where that is not known of a
chain that may span regions, it does not fit.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from syncpoint.base.model.cluster import ChainRecord
from syncpoint.base.model.errors import FailedPrecondition
from syncpoint.catalog.metadata.records import Topic

DEFAULT_CLASS = "default"


def may_store(topic: Topic, region: str) -> bool:
    """Whether messages of a topic may lie in a region. A topic that names no regions allows all."""
    return not topic.regions or region in topic.regions


def may_pass(topic: Topic, region: str) -> bool:
    """Whether messages of a topic may pass through proxies and subscribe forwarders of a region."""
    return not topic.enforce_in_transit or may_store(topic, region)


def check_passing(topic: Topic, region: str) -> None:
    """Raise `FailedPrecondition` unless messages of a topic may pass through proxies and subscribe forwarders of a
    region.
    """
    if not may_pass(topic, region):
        raise FailedPrecondition(
            f"Messages of {topic.name} may not pass through region {region}: its message_storage_policy enforces"
            f" transit. Use an endpoint in {', '.join(topic.regions)[:200]}."
        )


def storing_regions(topic: Topic, present: Iterable[str]) -> list[str]:
    """Those of the regions that exist which may store the topic; those a topic names first come first."""
    if not topic.regions:
        return sorted(set(present))
    known = set(present)
    return [region for region in dict.fromkeys(topic.regions) if region in known]


def durability_class(topic: Topic) -> str:
    """The name of the class a topic is stored with."""
    return topic.durability or DEFAULT_CLASS


def fits(
    topic: Topic, chain: ChainRecord, region_of: Mapping[str, str], spanning: Collection[str] = frozenset()
) -> bool:
    """Whether a chain may take messages of a topic.

    `region_of`: the regions of the processes that serve disks, as far as they are known; `spanning`: the classes whose
    disks may lie in several regions.
    """
    if (chain.klass or DEFAULT_CLASS) != durability_class(topic) or not may_store(topic, chain.region):
        return False
    if not topic.regions:
        return True
    unknown = "" if (chain.klass or DEFAULT_CLASS) in spanning else chain.region
    return all(may_store(topic, region_of.get(place.process, unknown)) for place in chain.places)
