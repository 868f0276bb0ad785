"""Where messages of a topic may lie, and through where they may pass."""

from __future__ import annotations

from syncpoint.base.model.cluster import ChainRecord, DiskPlace
from syncpoint.broker.router.assignment import SubscriptionAssignment, TopicAssignment
from syncpoint.broker.router.location import fits, may_pass, may_store, storing_regions
from syncpoint.catalog.metadata.records import Topic

FREE = Topic(1, "projects/p/topics/free")
BOUND = Topic(2, "projects/p/topics/bound", regions=("eu", "uk"))
TIGHT = Topic(3, "projects/p/topics/tight", regions=("eu",), enforce_in_transit=True, durability="firm")
PLACES = tuple(DiskPlace(f"c{n}", "d1", f"storage-{n}") for n in range(3))
CHAIN = ChainRecord(1, "one", "default", "eu", "pub-1", PLACES)
AT_HOME = {f"storage-{n}": "eu" for n in range(3)}


def test_storing_and_passing() -> None:
    assert may_store(FREE, "us")
    assert not may_store(BOUND, "us")
    assert may_pass(BOUND, "us")
    assert not may_pass(TIGHT, "us")
    assert storing_regions(FREE, ["us", "eu", "us"]) == ["eu", "us"]
    assert storing_regions(BOUND, ["us", "uk", "eu"]) == ["eu", "uk"]
    assert storing_regions(BOUND, ["us"]) == []


def test_every_disk_must_lie_in_an_allowed_region() -> None:
    assert fits(BOUND, CHAIN, AT_HOME)
    assert fits(BOUND, CHAIN, AT_HOME | {"storage-2": "uk"})
    assert not fits(BOUND, CHAIN, AT_HOME | {"storage-2": "us"})
    assert fits(FREE, CHAIN, AT_HOME | {"storage-2": "us"})


def test_a_chain_that_may_span_regions_fits_only_where_all_is_known() -> None:
    unknown = {"storage-0": "eu", "storage-1": "eu"}
    assert fits(BOUND, CHAIN, unknown)
    assert not fits(BOUND, CHAIN, unknown, {"default"})
    assert fits(BOUND, CHAIN, AT_HOME, {"default"})


def test_the_class_must_be_the_topic_s() -> None:
    assert not fits(TIGHT, CHAIN, AT_HOME)
    assert fits(TIGHT, ChainRecord(2, "two", "firm", "eu", "pub-1", PLACES), AT_HOME)
    assert fits(FREE, ChainRecord(2, "two", "", "eu", "pub-1", PLACES), AT_HOME)


def test_stored_forms_of_assignments() -> None:
    topic = TopicAssignment(3, (1, 5), {"us": (7,)})
    assert TopicAssignment.decode(topic.encode()) == topic
    assert TopicAssignment.decode(b'{"epoch":1,"chains":[2],"newer":0}') == TopicAssignment(1, (2,))
    assert TopicAssignment(1, (2,)).encode() == b'{"epoch":1,"chains":[2]}'
    members = SubscriptionAssignment(2, ("a", "b"))
    assert SubscriptionAssignment.decode(members.encode()) == members
