"""Subscriptions of one id in several projects are different ones, each with its own sites."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from syncpoint.base.model.errors import FailedPrecondition, NotFound, Unavailable
from syncpoint.programs.federation.acks.home_move import HomeMove
from syncpoint.programs.federation.acks.linked_sites import ends_of, part_with, parts_of
from syncpoint.programs.federation.flow_plan import FederationLink
from syncpoint.programs.federation.owned_keys.key_sites import KeySites
from syncpoint.programs.federation.patterns.registry import links_of
from syncpoint.programs.federation.spec import FederatedCluster, parse
from syncpoint.wire.protobuf.messages import pipeline

BANK, SHOP = "projects/bank/subscriptions/billing", "projects/shop/subscriptions/billing"


def two_namespaces(folder: Path, **keys: Any) -> list[FederationLink]:
    """The bank lives in b and c, the shop in a and b."""
    clusters = {one: {"endpoint": f"{one}:1"} for one in "abc"}
    spaces = {"bank": {"clusters": ["b", "c"]}, "shop": {"clusters": ["a", "b"]}}
    content = {
        "version": 1,
        "clusters": clusters,
        "namespaces": {name: {**one, "acks": True, **keys} for name, one in spaces.items()},
    }
    return links_of(parse(content, folder))


class Holders:
    """Servers, by cluster with the subscriptions they have."""

    def __init__(self, **there: set[str]) -> None:
        self.there, self.away = there, set[str]()

    def call(self, cluster: FederatedCluster, method: str, request: Any) -> Any:
        assert method == "AckExchange.AckChanges"
        assert request.homes_only
        if cluster.name in self.away:
            raise Unavailable("away")
        if request.subscription not in self.there[cluster.name]:
            raise NotFound(request.subscription)
        return pipeline.AckChangesResponse()


def sites_of(folder: Path, servers: Holders, name: str) -> list[str]:
    links, short = part_with(two_namespaces(folder), servers, name)  # type: ignore[arg-type]
    assert short == "billing"
    return [end.subscription for _, end in ends_of(links, short).values()]


def test_links_are_parted_by_projects_of_clusters(tmp_path: Path) -> None:
    parts = parts_of(two_namespaces(tmp_path))
    assert [sorted(one.name for one in part) for part in parts] == [["bank.b-c", "bank.c-b"], ["shop.a-b", "shop.b-a"]]
    assert parts_of(two_namespaces(tmp_path, acks=False)) == []


def test_an_id_means_the_subscription_that_there_is(tmp_path: Path) -> None:
    servers = Holders(a={SHOP}, b={SHOP}, c=set())
    assert sites_of(tmp_path, servers, "billing") == [SHOP, SHOP]
    servers.away = {"a"}
    assert sites_of(tmp_path, servers, "billing") == [SHOP, SHOP]


def test_an_id_of_several_needs_a_full_name(tmp_path: Path) -> None:
    servers = Holders(a={SHOP}, b={SHOP, BANK}, c={BANK})
    links = two_namespaces(tmp_path)
    for wrong in (
        lambda: KeySites(links, servers, "billing"),  # type: ignore[arg-type]
        lambda: HomeMove(links, servers, "billing", "b"),  # type: ignore[arg-type]
    ):
        with pytest.raises(FailedPrecondition, match=f"give the full name, {BANK} or {SHOP}"):
            wrong()
    sites = KeySites(links, servers, BANK)  # type: ignore[arg-type]
    assert {name: end.subscription for name, (_, end) in sites.ends.items()} == {"b": BANK, "c": BANK}
    assert sites.subscription == "billing"
    with pytest.raises(NotFound, match="there is none"):
        HomeMove(links, servers, "projects/other/subscriptions/billing", "b")  # type: ignore[arg-type]
