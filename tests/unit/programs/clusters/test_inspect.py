"""The view of a cluster is put together from whatever answers."""

from __future__ import annotations

from typing import Any

import pytest

from syncpoint.programs.clusters.inspect import Answers, Found
from syncpoint.programs.clusters.inspect import assemble as put_together
from syncpoint.programs.clusters.local import ProcessState
from syncpoint.wire.protobuf.messages import admin

pytestmark = pytest.mark.shows("status-command")

STATES = [
    ProcessState("storage-c1", ("storage",), 1, "running", "h:1"),
    ProcessState("publish-forwarder-1", ("publish-forwarder",), 2, "running", "h:2"),
    ProcessState("publish-forwarder-2", ("publish-forwarder",), 3, "running", "h:3"),
    ProcessState("proxy-1", ("proxy",), 4, "running", "h:4"),
]
REGIONS = {state.name: "r1" for state in STATES}
PROXY = {"proxy": {"published": 5, "streams": 1}}
STORAGE = {"storage": {"disks": {"d1": {"chains": {"1": {}, "2": {}}, "free_bytes": 3 << 30}}}}


def opened(number: int, epoch: int, **fields: Any) -> dict[str, Any]:
    chain = {"chain": number, "epoch": epoch, "failed": "", "published": 7, "full": False, "appended": 9}
    chain |= {"persisted": 8, "under_replicated": 0, "disks": {"/c1/d1": "ok"}}
    return {"publish-forwarder": {"chains": [chain | fields]}}


def listed(*chains: tuple[int, str, int], versions: str = "1") -> tuple[list[Any], list[Any]]:
    members = [
        admin.Member(name=state.name, version=versions, address=f"m:{number}") for number, state in enumerate(STATES, 1)
    ]
    disks = [admin.ChainDisk(cluster="c1", disk="d1")]
    return members, [
        admin.Chain(number=number, owner=owner, epoch=epoch, disks=disks, durability_class="default")
        for number, owner, epoch in chains
    ]


def assemble(states: Any, regions: Any, reports: Any, listed: Any, silence: str = "") -> Found:
    stores = [ProcessState("etcd-1", ("etcd",), 9, "running", "h:9")]
    return put_together(Answers(stores, states, regions, reports, listed, silence))


def everybody(**answers: Any) -> dict[str, Any]:
    """Every process answers, these with something of their own."""
    return {state.name: {} for state in STATES} | {name.replace("_", "-"): one for name, one in answers.items()}


def test_all_is_well() -> None:
    reports = everybody() | {"storage-c1": STORAGE, "publish-forwarder-1": opened(1, 2), "proxy-1": PROXY}
    view = assemble(STATES, REGIONS, reports, listed((1, "publish-forwarder-1", 2)))
    assert view["problems"] == []
    assert [one["doing"] for one in view["processes"]] == [
        "",
        "1 disk for 2 chains, 3.0 GiB free",
        "chains 1; 7 messages taken",
        "",
        "5 messages published, 1 stream",
    ]
    (chain,) = view["chains"]
    assert (chain["owner"], chain["persisted"], chain["disks"], chain["under_replicated"]) == (
        "publish-forwarder-1",
        "8 of 9",
        "1/1",
        "0",
    )


def test_the_later_epoch_counts() -> None:
    reports = {"publish-forwarder-1": opened(1, 2), "publish-forwarder-2": opened(1, 3), "proxy-1": PROXY}
    (chain,) = assemble(STATES, REGIONS, reports, None)["chains"]
    assert (chain["owner"], chain["epoch"]) == ("publish-forwarder-2", 3)
    view = assemble(STATES, REGIONS, reports, listed((1, "publish-forwarder-1", 4)))
    assert (view["chains"][0]["owner"], view["chains"][0]["disks"]) == ("publish-forwarder-1", "?/1")
    assert any("does not say how it is" in problem for problem in view["problems"])


def test_what_is_wrong_is_said() -> None:
    states = [*STATES[:3], ProcessState("proxy-1", ("proxy",), None, "down", "h:4")]
    bad = opened(1, 2, failed="no quorum", full=True, disks={"/c1/d1": "failed"})
    view = assemble(states, REGIONS, {"publish-forwarder-1": bad, "publish-forwarder-2": None}, None, "etcd is away")
    reports = "\n".join(view["problems"])
    for expected in (
        "proxy-1 is down",
        "publish-forwarder-2 runs and does not answer",
        "no proxy answers either",
        "etcd is away",
    ):
        assert expected in reports
    for expected in ("cannot be written: no quorum", "publishing is refused", "failed: /c1/d1"):
        assert expected in reports


def test_a_chain_nobody_has_and_versions_that_differ() -> None:
    found = listed((1, "", 0))
    found[0][0].version = "2"
    view = assemble(STATES, REGIONS, {"proxy-1": PROXY}, found)
    assert "chain 1 is open nowhere" in view["problems"]
    assert any("versions are mixed: 3 of 1, 1 of 2" in problem for problem in view["problems"])


def test_the_weight_of_a_forwarder_is_shown_where_it_is_not_one() -> None:
    reports = {"publish-forwarder-1": opened(1, 2), "proxy-1": PROXY}
    members, chains = listed((1, "publish-forwarder-1", 2))
    members[1].weight, members[3].weight = 2.0, 1.0
    found = {one["name"]: one for one in assemble(STATES, REGIONS, reports, (members, chains))["processes"]}
    assert found["publish-forwarder-1"]["doing"].startswith("weight 2; chains 1")
    assert (found["publish-forwarder-1"]["weight"], found["proxy-1"]["weight"]) == (2.0, 1.0)
    assert "weight" not in found["proxy-1"]["doing"]


def test_lost_topics_and_messages_stored_twice_are_reported() -> None:
    lost = [{"topic": 7, "sources": 1, "messages": 3, "epoch": 0}]
    proxy = {"proxy": {**PROXY["proxy"], "resent_duplicates": 4}}
    reports = {"publish-forwarder-1": opened(1, 2, orphans=lost), "proxy-1": proxy}
    view = assemble(STATES, REGIONS, reports, listed((1, "publish-forwarder-1", 2)))
    assert any("chain 1 holds messages of 1 topic that a restore made unknown" in one for one in view["problems"])
    assert view["processes"][-1]["doing"] == "5 messages published, 1 stream, 4 messages stored twice"


def test_processes_nobody_here_started_are_judged_by_their_answers() -> None:
    abroad = [ProcessState(one.name, one.roles, None, "", one.address) for one in STATES]
    found = listed((1, "publish-forwarder-1", 2))
    reports = everybody(publish_forwarder_1=opened(1, 2))
    view = assemble(abroad, REGIONS, reports, found)
    assert view["problems"] == []
    assert {one["state"] for one in view["processes"]} == {"running"}
    reports["publish-forwarder-2"] = reports["proxy-1"] = None
    gone = [member for member in found[0] if member.name not in ("proxy-1", "storage-c1")]
    view = assemble(abroad, REGIONS, reports, (gone, found[1]))
    assert [one["state"] for one in view["processes"]][1:] == ["running", "running", "silent", "down"]
    assert view["problems"] == [
        "storage-c1 answers and is no member",
        "publish-forwarder-2 is a member and does not answer at m:3",
        "proxy-1 is down",
    ]


def test_what_answers_runs_whatever_the_folder_remembers() -> None:
    states = [*STATES[:3], ProcessState("proxy-1", ("proxy",), None, "down", "h:4")]
    view = assemble(states, REGIONS, everybody(publish_forwarder_1=opened(1, 2)), listed((1, "publish-forwarder-1", 2)))
    assert view["problems"] == []


def test_a_publish_forwarder_without_a_chain_is_reported() -> None:
    """So it is for a moment after its start, and as long as there are no disks for one."""
    members, chains = listed()
    for member in members:
        member.roles.append(member.name.rpartition("-")[0])
    members[2].draining = True

    def problems(*classes: str) -> list[str]:
        found_answers = Answers(
            [], STATES, REGIONS, everybody(publish_forwarder_1=opened(1, 2)), (members, chains), "", classes
        )
        return put_together(found_answers)["problems"]

    assert problems() == ["publish-forwarder-1 has no chain yet; its log shows why if that lasts"]
    chains += listed((1, "publish-forwarder-1", 2))[1]
    chains[0].home = "publish-forwarder-1"
    assert problems() == []
    assert problems("default", "fast") == [
        "publish-forwarder-1 has no chain of class fast yet; its log shows why if that lasts"
    ]
