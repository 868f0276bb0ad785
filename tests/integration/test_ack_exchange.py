"""Acknowledgements between two sites, on each of the three houses: real servers, the exchange of `federation run`, and
copies made as the job on Spark makes them.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
from pyspark_pubsub.rpc import close_idle
from syncpoint.base.model.errors import Code, SyncpointError
from syncpoint.programs.federation.acks.ack_rounds import AckRounds
from syncpoint.programs.federation.acks.home_move import HomeMove
from syncpoint.programs.federation.flow_plan import FederationLink
from syncpoint.programs.federation.patterns.registry import links_of
from syncpoint.programs.federation.servers import Servers
from syncpoint.programs.federation.spec import parse
from syncpoint.testing.rigs.official import bodies, eventually
from syncpoint.wire.protobuf.messages import pipeline
from tests.integration.conftest import Space
from tests.kit.copying import Copier

pytestmark = pytest.mark.shows("ack-exchange")

KEPT = {"message_retention_duration": {"seconds": 3600}}


class Sites:
    """One flow between two projects or servers, each with a topic `orders` and a subscription `billing`."""

    def __init__(self, one: Space, other: Space, folder: Path, **topic: Any) -> None:
        self.spaces = one, other
        self.subscriptions = []
        for space in self.spaces:
            name = space.topic("orders", **topic)
            self.subscriptions.append(space.subscription(name, "billing", ack_deadline_seconds=600))
        task = {
            "pattern": "replicate", "acks": True, "from": {"cluster": "a", "topic": one.path("topics", "orders")},
            "to": {"cluster": "b", "project": other.project},
        }  # fmt: skip
        clusters = {"a": {"endpoint": one.endpoint}, "b": {"endpoint": other.endpoint}}
        name = f"copy{uuid.uuid4().hex[:8]}"
        self.federation = parse({"version": 1, "clusters": clusters, "tasks": {name: task}}, folder)
        self.links: list[FederationLink] = links_of(self.federation)
        self.servers = Servers()
        (flow,) = self.servers.flows(self.links)
        self.flow = flow
        self.copier = Copier(self.federation, flow)
        self.rounds = AckRounds(self.links, self.servers)

    def publish(self, *numbers: int) -> None:
        one = self.spaces[0]
        one.publish(one.path("topics", "orders"), *(b"%d" % number for number in numbers))

    def copy(self) -> int:
        return len(self.copier.copy(self.servers))

    def acknowledge(self, site: int, most: int, wanted: Callable[[bytes], bool] = lambda data: True) -> set[bytes]:
        """Pull what is there, acknowledge what is wanted, give the rest back."""
        space, name = self.spaces[site], self.subscriptions[site]
        got = space.pull(name, most)
        done = [one for one in got if wanted(one.message.data)]
        space.ack(name, *done)
        back = [one for one in got if one not in done]
        if back:
            space.nack(name, *back)
        return set(bodies(done))

    def quiesce(self) -> None:
        """Rounds until nothing is news."""

        def quiet() -> bool:
            self.rounds.hurry()
            brought = self.rounds.step()
            return not brought and all(not one.why for one in self.rounds.states)

        eventually(quiet, within=60.0)

    def close(self) -> None:
        self.servers.close()
        close_idle()


@pytest.fixture
def sites(tmp_path: Path) -> Iterator[Callable[..., Sites]]:
    made: list[Sites] = []

    def make(*endpoints: str, **topic: Any) -> Sites:
        made.append(Sites(*(Space(one) for one in endpoints), tmp_path, **topic))  # type: ignore[misc]
        return made[-1]

    yield make
    for one in made:
        one.close()
        for space in one.spaces:
            space.close()


def rest(space: Space, subscription: str) -> set[bytes]:
    """Everything that is still delivered."""
    return set(bodies(space.rest(subscription)))


def test_what_is_acknowledged_at_one_end_is_not_delivered_at_the_other(house: str, sites: Callable[..., Sites]) -> None:
    one = sites(house, house)
    one.publish(*range(20))
    assert one.copy() == 20
    done = one.acknowledge(0, 20, lambda data: int(data) % 3 == 0)
    done |= one.acknowledge(1, 20, lambda data: int(data) % 3 == 1)
    one.quiesce()
    left = {b"%d" % number for number in range(20)} - done
    assert left
    assert set(bodies(one.spaces[0].pull(one.subscriptions[0], len(left)))) == left
    assert rest(one.spaces[1], one.subscriptions[1]) == left


def test_a_copy_is_born_acknowledged(house: str, sites: Callable[..., Sites]) -> None:
    one = sites(house, house)
    one.publish(0)
    one.copy()
    one.quiesce()  # the link is known at both ends
    one.publish(*range(1, 10))
    done = one.acknowledge(0, 10, lambda data: int(data) >= 4)
    one.quiesce()
    one.copy()
    assert rest(one.spaces[1], one.subscriptions[1]) == {b"%d" % number for number in range(10)} - done


def test_a_seek_at_one_end_is_done_at_the_other_and_old_acknowledgements_end_with_it(
    house: str, sites: Callable[..., Sites]
) -> None:
    one = sites(house, house, **KEPT)
    for space, name in zip(one.spaces, one.subscriptions, strict=True):
        changed = {"name": name, "retain_acked_messages": True}
        mask = {"paths": ["retain_acked_messages"]}
        space.api.update_subscription({"subscription": changed, "update_mask": mask})
    one.publish(*range(6))
    one.copy()
    assert one.acknowledge(0, 6) == {b"%d" % number for number in range(6)}
    one.quiesce()
    one.spaces[1].api.seek({"subscription": one.subscriptions[1], "time": {"seconds": 1}})
    one.quiesce()
    assert rest(one.spaces[0], one.subscriptions[0]) == {b"%d" % number for number in range(6)}
    one.quiesce()
    assert rest(one.spaces[1], one.subscriptions[1]) == set()


def test_requests_that_mean_nothing_are_refused(house: str, sites: Callable[..., Sites]) -> None:
    one = sites(house, house)
    one.publish(*range(3))
    one.copy()
    link = one.flow.link

    def refused(method: str, **fields: Any) -> SyncpointError:
        request = {"AckChanges": pipeline.AckChangesRequest, "MergeAcks": pipeline.MergeAcksRequest}[method](**fields)
        with pytest.raises(SyncpointError) as caught:
            one.servers.call(link.target, f"AckExchange.{method}", request)
        return caught.value

    here = one.subscriptions[1]
    assert refused("AckChanges", subscription="x").code is Code.INVALID_ARGUMENT
    assert refused("AckChanges", subscription=f"{here}-none").code is Code.NOT_FOUND
    assert refused("AckChanges", subscription=here, link="none").code is Code.NOT_FOUND
    assert refused("AckChanges", subscription=here, source_topic="1/2").code is Code.FAILED_PRECONDITION
    stale = refused("MergeAcks", subscription=here, link=one.flow.name, generation=7)
    assert stale.code is Code.FAILED_PRECONDITION
    assert "generation 0" in stale.message
    runs = pipeline.AckedRuns(source=1, runs=b"\x80")
    bad = refused("MergeAcks", subscription=here, link=one.flow.name, sources=[runs])
    assert (bad.code, "sources[0].runs" in bad.message) == (Code.INVALID_ARGUMENT, True)
    assert rest(one.spaces[1], here) == {b"0", b"1", b"2"}


def test_subscriptions_that_differ_are_not_exchanged(house: str, sites: Callable[..., Sites]) -> None:
    one = sites(house, house)
    for space, text in zip(one.spaces, ('attributes.kind = "a"', 'attributes.kind = "b"'), strict=True):
        space.subscription(space.path("topics", "orders"), "filtered", filter=text)
    one.rounds.step()
    assert {state.subscription: state.why for state in one.rounds.states}["filtered"] == "their filters differ"


def test_a_lost_site_comes_back(boot: Any, sites: Callable[..., Sites]) -> None:
    """Half is consumed at A, A dies, B delivers the rest and nothing twice; A comes back and delivers nothing again."""
    servers = [boot(), boot()]
    one = sites(*(server.endpoint for server in servers))
    one.publish(*range(200))
    one.copy()
    done = one.acknowledge(0, 200, lambda data: int(data) < 100)
    assert len(done) == 100
    one.quiesce()
    servers[0].kill9()
    there = rest(one.spaces[1], one.subscriptions[1])
    assert there == {b"%d" % number for number in range(100, 200)}
    one.rounds.step()
    assert any(state.why for state in one.rounds.states)  # A does not answer
    servers[0].start()
    one.quiesce()
    assert rest(one.spaces[0], one.subscriptions[0]) == set()


def test_one_site_delivers_and_a_move_repeats_nothing(boot: Any, sites: Callable[..., Sites]) -> None:
    """Streams of the official client stay attached at both sites; a site that missed the move learns of it first."""
    servers = [boot(), boot()]
    one = sites(*(server.endpoint for server in servers))
    got: tuple[list[bytes], list[bytes]] = ([], [])

    def receive(site: int) -> Callable[[Any], None]:
        def callback(message: Any) -> None:
            got[site].append(message.data)
            message.ack()

        return callback

    def moved(site: str, *, force: bool = False) -> Any:
        return HomeMove(one.links, one.servers, "billing", site).move(10.0, force=force)

    one.publish(0)
    one.copy()
    assert moved("a").epoch == 2
    for site in (0, 1):
        one.spaces[site].listen(one.subscriptions[site], receive(site))
    one.publish(*range(1, 50))
    one.copy()
    eventually(lambda: len(got[0]) == 50)
    found = moved("b")
    assert (found.epoch, found.outstanding, dict(found.silent)) == (4, 0, {})
    one.publish(*range(50, 80))
    one.copy()
    eventually(lambda: len(got[1]) == 30)
    servers[1].kill9()
    with pytest.raises(SyncpointError, match="--force") as refused:
        moved("a")
    assert refused.value.code is Code.FAILED_PRECONDITION
    assert "b" in moved("a", force=True).silent
    servers[1].start()
    one.quiesce()
    homes, silent = HomeMove(one.links, one.servers, "billing", "a").homes()
    assert (homes, silent) == ({"a": ("a", 6), "b": ("a", 6)}, {})
    one.publish(*range(80, 90))
    one.copy()
    eventually(lambda: {b"%d" % number for number in range(80, 90)} <= set(got[0]))
    assert not {b"%d" % number for number in range(80, 90)} & set(got[1])
    assert Counter(got[0])[b"0"] + Counter(got[1])[b"0"] == 1
    assert set(got[0]) | set(got[1]) == {b"%d" % number for number in range(90)}
