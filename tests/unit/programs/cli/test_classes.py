"""Durability classes on the command line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from click.testing import Result

from syncpoint.wire.protobuf.messages import admin

pytestmark = pytest.mark.shows("classes")

Run = Callable[..., Result]


def test_add_waits_for_the_chains_of_all_forwarders(server: Any, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syncpoint.programs.cli.classes.POLL_S", 0.0)
    chains = [
        admin.Chain(number=1, durability_class="default", home="f1", owner="f1"),
        admin.Chain(number=2, durability_class="fast", home="f1", owner="f1"),
        admin.Chain(number=3, durability_class="fast", home="f2"),
        admin.Chain(number=3, durability_class="fast", home="f2", owner="f1"),
    ]
    seen = iter((1, 2, 3, 4))
    server.answers["Admin.CreateDurabilityClass"] = lambda request: request.durability_class
    server.answers["Admin.ListMembers"] = admin.ListMembersResponse(
        members=[admin.Member(name=name, roles=["publish-forwarder"]) for name in ("f1", "f2")]
        + [admin.Member(name="s1", roles=["storage"])]
    )
    server.answers["Admin.ListChains"] = lambda request: admin.ListChainsResponse(chains=chains[: next(seen)])
    found = run("cluster", "classes", "add", "fast", "--clusters", "1", "--durability", "async", "--one-region")
    assert found.exit_code == 0, found.output
    made = server.request("Admin.CreateDurabilityClass").durability_class
    assert (made.name, made.clusters, made.disks, made.durability) == ("fast", 1, 0, admin.Durability.Value("ASYNC"))
    assert made.HasField("spans_regions")
    assert not made.spans_regions
    assert next(seen, None) is None, "until somebody has the last one open"
    assert found.output.count("Waiting for chains of") == 2, "f1, f2; then f2"
    assert "--durability-class fast" in found.output


def test_chains_that_do_not_come_are_named(server: Any, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syncpoint.programs.cli.classes.WAIT_S", 0.0)
    server.answers["Admin.CreateDurabilityClass"] = lambda request: request.durability_class
    server.answers["Admin.ListMembers"] = admin.ListMembersResponse(
        members=[admin.Member(name="f1", roles=["publish-forwarder"])]
    )
    server.answers["Admin.ListChains"] = admin.ListChainsResponse()
    found = run("cluster", "classes", "add", "fast")
    assert found.exit_code == 1
    assert "no chain for it yet: f1" in found.output
    assert run("cluster", "classes", "add", "faster", "--no-wait").exit_code == 0


def test_list(server: Any, run: Run) -> None:
    server.answers["Admin.ListDurabilityClasses"] = admin.ListDurabilityClassesResponse(
        durability_classes=[
            admin.DurabilityClass(name="fast", clusters=1, disks=3, durability=admin.Durability.Value("MEMORY"))
        ]
    )
    found = run("cluster", "classes", "list")
    assert found.output.splitlines()[-1].split()[:5] == ["fast", "1", "x", "3", "memory"]
