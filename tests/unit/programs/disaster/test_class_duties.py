"""Who is fenced, by what sites declare, and when a recovery is over."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from syncpoint.programs.disaster import class_duties
from syncpoint.programs.disaster.class_duties import ClassDuties, to_fence
from syncpoint.wire.protobuf.messages import admin

pytestmark = pytest.mark.shows("disaster-classes")


def declared(writer: str, since_s: int) -> admin.DisasterClass:
    return admin.DisasterClass(name="billing", writer=writer, since={"seconds": since_s})


@pytest.mark.parametrize(
    ("writers", "fenced"),
    [
        ({"eu": ("here", 1), "us": ("elsewhere", 2)}, []),
        ({"eu": ("here", 1), "us": ("here", 2)}, ["eu"]),
        ({"eu": ("here", 1), "us": ("recovering", 2)}, ["eu"]),
        ({"eu": ("recovering", 3), "us": ("here", 2), "ap": ("here", 1)}, ["ap", "us"]),
        ({"eu": ("here", 2), "us": ("here", 2)}, []),  # nobody knows
        ({"eu": ("here", 2), "us": ("here", 2), "ap": ("here", 1)}, []),
        ({"eu": ("here", 2), "us": ("here", 0)}, []),  # an earlier version does not say when
        ({"eu": ("here", 1)}, []),  # the other one does not answer
        ({}, []),
    ],
)
def test_the_writer_that_was_declared_last_stays(writers: dict[str, tuple[str, int]], fenced: list[str]) -> None:
    assert to_fence({site: declared(*one) for site, one in writers.items()}) == fenced


class TwoSites:
    """Sites `eu`, which recovers, and `us`, with one flow from `us` to `eu`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.classes = {"eu": declared("recovering", 1), "us": declared("elsewhere", 2)}
        self.end, self.stored = 10, 5
        monkeypatch.setattr(class_duties, "begin_at", lambda servers, flow: json.dumps({"7": self.stored}))
        eu, us = (SimpleNamespace(name=name, stream=None) for name in ("eu", "us"))
        link: Any = SimpleNamespace(source=us, target=eu, source_project="p", target_project="p")
        servers: Any = self
        self.duties = ClassDuties([link], servers)

    def flows(self, links: Any) -> list[Any]:
        return [SimpleNamespace(name="us-eu")]

    def positions_of(self, flow: Any) -> Any:
        return SimpleNamespace(sources=[SimpleNamespace(source=7, begin=0, end=self.end)])

    def call(self, cluster: Any, method: str, request: Any) -> Any:
        if method == "Admin.ListClassedProjects":
            one = admin.ListClassedProjectsResponse()
            one.projects.add(project="projects/p", disaster_class=self.classes[cluster.name])
            return one
        self.classes[cluster.name] = declared(request.disaster_class.writer, 99)
        return None

    @property
    def writer(self) -> str:
        self.duties.look()
        return self.classes["eu"].writer


def test_a_recovery_is_over_once_all_is_there_that_was_at_the_other_site(monkeypatch: pytest.MonkeyPatch) -> None:
    sites = TwoSites(monkeypatch)
    assert sites.writer == "recovering"
    sites.stored = 10
    assert sites.writer == "here"


def test_a_recovery_waits_for_what_another_site_took_while_it_wrote_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    sites = TwoSites(monkeypatch)
    assert sites.writer == "recovering"
    sites.end, sites.stored = 20, 10  # `us` was declared to write, and not to again, and took ten more
    sites.classes["us"] = declared("elsewhere", 4)
    assert sites.writer == "recovering"
    sites.stored = 20
    assert sites.writer == "here"


def test_what_nobody_knows_is_reported_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    sites = TwoSites(monkeypatch)
    sites.classes["us"] = admin.DisasterClass()
    assert (sites.writer, sites.writer) == ("recovering", "recovering")
    sites.classes["us"] = declared("here", 1)
    assert (sites.writer, sites.writer) == ("recovering", "recovering")
    comparing, declaring = (one.getMessage() for one in caplog.records)
    assert "eu is recovering until us can be compared with it" in comparing
    assert "which of eu and us was declared last is unknown" in declaring
