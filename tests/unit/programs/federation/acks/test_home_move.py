"""Moving a subscription to another site: in which order, and what it is refused for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from syncpoint.base.model.errors import (
    Code,
    FailedPrecondition,
    NotFound,
    PermissionDenied,
    SyncpointError,
    Unavailable,
)
from syncpoint.programs.federation.acks import home_move
from syncpoint.programs.federation.acks.home_move import MOVING, HomeMove
from syncpoint.programs.federation.flow_plan import FederationLink, Flow
from syncpoint.programs.federation.spec import FederatedCluster
from syncpoint.wire.protobuf.messages import admin, pipeline, pubsub
from tests.unit.programs.federation.acks.test_ack_rounds import ServersInMemory, links


class SitesInMemory(ServersInMemory):
    """Two sites that have the subscription `billing`: their homes, and what consumers of each still have."""

    def __init__(self) -> None:
        super().__init__()
        self.there = {"a": {"billing": {}}, "b": {"billing": {}}}
        self.homes = {"a": ("a", 4), "b": ("a", 4)}
        self.outstanding: dict[str, list[int]] = {"a": [0], "b": [0]}
        self.away: set[str] = set()
        self.copied = [100]  # of 100 messages that a site has; one look after the other
        self.steps: list[str] = []
        self.unanswered = 0  # exchanges that fail before one works

    def call(self, cluster: FederatedCluster, method: str, request: Any) -> Any:
        name = cluster.name
        if name in self.away:
            raise Unavailable("away")
        if method == "Admin.GetSubscriptionState":
            left = self.outstanding[name]
            self.steps.append(f"{name} has {left[0]}")
            return admin.SubscriptionState(outstanding_messages=left.pop(0) if len(left) > 1 else left[0])
        if method == "Subscriber.GetSubscription":
            return pubsub.Subscription(name=request.subscription, topic="projects/shop/topics/orders")
        if method == "AckExchange.SetHome":
            self.homes[name] = request.home, request.epoch
            self.steps.append(f"{name} knows {request.home} {request.epoch}")
            assert (request.site, request.subscription) == (name, "projects/shop/subscriptions/billing")
            return pipeline.SetHomeResponse()
        if method == "AckExchange.AckChanges" and not request.homes_only and self.unanswered:
            self.unanswered -= 1
            self.steps.append("no exchange")
            raise Unavailable("the link is down")
        answer = super().call(cluster, method, request)
        if method == "AckExchange.AckChanges":
            answer.home, answer.home_epoch = self.homes[name]
        return answer

    def flows(self, links: list[FederationLink]) -> list[Flow]:
        return self.reported_flows(links)[0]

    def positions_of(self, flow: Flow) -> Any:
        return pipeline.Positions(sources=[pipeline.SourcePosition(source=7, end=100)])

    def cursor(self, flow: Flow) -> Any:
        return pipeline.Cursor(ranges=[pipeline.SourceRange(source=7, begin=min(self.copied[0], 92), end=5000)])

    def link_of(self, flow: Flow) -> Any:
        done = self.copied.pop(0) if len(self.copied) > 1 else self.copied[0]
        return pipeline.Link(committed=[pipeline.SourceRange(source=7, end=done)])


def move(folder: Path, sites: SitesInMemory, home: str, *, drain_s: float = 5.0, force: bool = False) -> Any:
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    made = HomeMove(links(folder, acks=True), sites, "billing", home, lambda: now[0], sleep)  # type: ignore[arg-type]
    return made.move(drain_s, force=force)


def test_all_are_held_until_consumers_are_done_and_then_the_new_one_begins(tmp_path: Path) -> None:
    sites = SitesInMemory()
    sites.outstanding["a"] = [3, 1, 0]
    found = move(tmp_path, sites, "b")
    assert (found.home, found.epoch, found.outstanding, dict(found.silent)) == ("b", 6, 0, {})
    held = [f"a knows {MOVING} 5", f"b knows {MOVING} 5"]
    assert sites.steps == [*held, "a has 3", "a has 1", "a has 0", "b knows b 6", "a knows b 6"]


def test_consumers_that_do_not_end_are_waited_for_no_longer_than_asked(tmp_path: Path) -> None:
    sites = SitesInMemory()
    sites.outstanding["a"] = [7]
    assert move(tmp_path, sites, "b", drain_s=1.0).outstanding == 7
    assert sites.homes == {"a": ("b", 6), "b": ("b", 6)}


def test_an_exchange_that_fails_is_no_exchange_without_news(tmp_path: Path) -> None:
    sites = SitesInMemory()
    sites.unanswered = 3
    assert move(tmp_path, sites, "b").outstanding == 0
    assert sites.steps[-2:] == ["b knows b 6", "a knows b 6"]
    assert sites.unanswered == 0, "it was tried until it worked"
    sites.unanswered = 1000
    assert move(tmp_path, sites, "a", drain_s=1.0).outstanding is None, "what was acknowledged at b is not known"


def test_a_site_that_is_away_stops_a_move_unless_it_is_forced(tmp_path: Path) -> None:
    sites = SitesInMemory()
    sites.away = {"a"}
    with pytest.raises(FailedPrecondition, match="--force"):
        move(tmp_path, sites, "b")
    assert sites.steps == []
    assert dict(move(tmp_path, sites, "b", force=True).silent) == {"a": "away"}
    assert sites.homes == {"a": ("a", 4), "b": ("b", 6)}
    with pytest.raises(SyncpointError) as refused:
        move(tmp_path, sites, "a", force=True)
    assert refused.value.code is Code.UNAVAILABLE


def test_what_the_new_home_lacks_is_waited_for(tmp_path: Path) -> None:
    """Up to where the topic ended when all were held: publishers go on elsewhere."""
    sites = SitesInMemory()
    sites.copied = [90, 95, 99, 100]
    assert move(tmp_path, sites, "b").epoch == 6
    assert sites.copied == [100]


def test_a_home_that_would_lack_messages_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sites = SitesInMemory()
    sites.copied = [40]
    with pytest.raises(FailedPrecondition, match="b lacks 60 messages"):
        move(tmp_path, sites, "b")
    assert sites.homes == {"a": ("a", 6), "b": ("a", 6)}, "as it was before"
    sites.steps.clear()
    monkeypatch.setattr(home_move, "NEARLY", 10)
    with pytest.raises(FailedPrecondition, match="b lacks 60 messages"):
        move(tmp_path, sites, "b")
    assert sites.steps == [], "nobody was held"
    monkeypatch.undo()
    sites.homes = {"a": ("", 0), "b": ("", 0)}
    assert move(tmp_path, sites, "b").epoch == 2, "all have delivered, so that none is held for it"
    assert move(tmp_path, sites, "b", force=True).home == "b"


def test_a_refusal_after_a_move_that_broke_off_says_that_nobody_delivers(tmp_path: Path) -> None:
    sites = SitesInMemory()
    sites.homes, sites.copied = {"a": (MOVING, 1), "b": (MOVING, 1)}, [40]
    with pytest.raises(FailedPrecondition, match=r"No site delivers .* until this is repeated: b lacks 60"):
        move(tmp_path, sites, "b")
    assert sites.homes == {"a": (MOVING, 2), "b": (MOVING, 2)}
    sites.copied = [100]
    assert move(tmp_path, sites, "b").home == "b"


def test_unknown_sites_and_rights_are_named(tmp_path: Path) -> None:
    sites = SitesInMemory()
    with pytest.raises(NotFound, match="there is a, b"):
        move(tmp_path, sites, "c")
    sites.failing["a", "billing"] = PermissionDenied("no")
    with pytest.raises(PermissionDenied):
        move(tmp_path, sites, "b")
