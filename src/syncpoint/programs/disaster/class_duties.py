"""What billing projects are owed while a federation runs: one writer, its tail, and a daily reconciliation.

Place: threads beside the supervisor of `syncpoint federation run`; nothing is kept here, sites know their classes and
last reconciliations. Needs no JVM.
Promise: of two sites that take publishes, all but the one declared last become `elsewhere`, within seconds of the time
they answer; which one that is, the declaration decides that stands when it is changed. A site takes publishes alone
again once all is there that the others had when they were seen to have stopped.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from syncpoint.base.model.errors import FailedPrecondition, SyncpointError
from syncpoint.catalog.access.disaster_classes import BILLING
from syncpoint.programs.disaster.project_reconciliation import reconcile, sentence
from syncpoint.programs.disaster.reconciled_topic import Window
from syncpoint.programs.federation.flow_plan import FederationLink, Flow
from syncpoint.programs.federation.flow_starts import begin_at
from syncpoint.programs.federation.servers import Servers
from syncpoint.programs.federation.spec import FederatedCluster
from syncpoint.wire.protobuf.messages import admin

LOOK_S: Final = 5.0
DAILY_LOOK_S: Final = 600.0
DAY_S: Final = 86_400.0
WINDOW_S: Final = 25 * 3600.0
GRACE_S: Final = 60.0

log = logging.getLogger(__name__)

Classes = Mapping[str, Any]
"""The `DisasterClass` of a project by site."""
_Ends = dict[str, dict[int, int]]
"""By flow: where each source of its topic ended."""


def to_fence(classes: Classes) -> list[str]:
    """Sites that must not take publishes any more, since another one was declared to after them. None where that is
    unknown: two were declared at once, or one does not say when, as earlier versions do not.
    """
    writers = {site: one.since.ToNanoseconds() for site, one in classes.items() if one.writer not in ("", "elsewhere")}
    newest = max(writers.values(), default=0)
    last = [site for site, since in writers.items() if since == newest]
    return sorted(writers.keys() - set(last)) if len(last) == 1 and all(writers.values()) else []


class ClassDuties:
    """The projects of a file's links."""

    def __init__(
        self, links: Iterable[FederationLink], servers: Servers, wall: Callable[[], float] = time.time
    ) -> None:
        self._servers, self._wall = servers, wall
        self._links: dict[str, list[FederationLink]] = {}
        for link in links:
            same = link.source_project == link.target_project
            if same and link.source.stream is None and link.target.stream is None:
                self._links.setdefault(f"projects/{link.source_project}", []).append(link)
        self._ends: dict[str, tuple[list[tuple[str, int]], _Ends]] = {}  # by project: what a writer has to get
        self._why: dict[tuple[str, str], str] = {}  # what was reported last

    def look(self) -> None:
        """Keep one writer, and end recoveries."""
        classes: dict[str, dict[str, Any]] = {project: {} for project in self._links}
        for cluster in self._sites(link for links in self._links.values() for link in links).values():
            self._try(cluster.name, "classes", partial(self._list, cluster, classes))
        for project, found in classes.items():
            self._try(project, "writers", partial(self._one_writer, project, found))

    def _list(self, cluster: FederatedCluster, classes: Mapping[str, dict[str, Any]]) -> None:
        """Note the billing projects of a site."""
        request, more = admin.ListClassedProjectsRequest(page_size=1000), True
        while more:
            answer = self._servers.call(cluster, "Admin.ListClassedProjects", request)
            for one in answer.projects:
                if one.disaster_class.name == BILLING and one.project in classes:
                    classes[one.project][cluster.name] = one.disaster_class
            request.page_token, more = answer.next_page_token, bool(answer.next_page_token)

    def reconcile_daily(self) -> None:
        """Reconcile each site's projects whose last reconciliation is a day old."""
        for project, links in self._links.items():
            for cluster in self._sites(links).values():
                self._try(project, cluster.name, partial(self._due, project, cluster))

    def _due(self, project: str, cluster: FederatedCluster) -> None:
        one = self._servers.call(cluster, "Admin.GetProject", admin.GetProjectRequest(project=project))
        last = one.last_reconciliation.time.seconds if one.HasField("last_reconciliation") else 0
        if one.disaster_class.name == BILLING and self._wall() - last >= DAY_S:
            self._reconcile(project, cluster)

    def _reconcile(self, project: str, cluster: FederatedCluster) -> None:
        now = self._wall()
        found = reconcile(
            partial(self._servers.call, cluster),
            self._servers,
            [one for one in self._links[project] if one.source.name == cluster.name],
            project,
            Window(int((now - WINDOW_S) * 1e6), int((now - GRACE_S) * 1e6)),
        )
        log.log(logging.WARNING if found.total else logging.INFO, "at %s: %s", cluster.name, sentence(project, found))

    def _one_writer(self, project: str, classes: Classes) -> None:
        fenced = to_fence(classes)
        writers = [site for site, one in classes.items() if one.writer not in ("", "elsewhere") and site not in fenced]
        if fenced:
            (writer,) = writers
            if classes[writer].writer == "here":  # first: who dies in between leaves both, and is followed by a look
                self._declare(project, writer, "recovering", classes)
            for site in fenced:
                self._declare(project, site, "elsewhere", classes)
            log.warning("%s: %s was declared to write later, so %s will not", project, writer, " and ".join(fenced))
        elif len(writers) > 1:
            raise FailedPrecondition(
                f"which of {' and '.join(sorted(writers))} was declared last is unknown: declare it anew"
            )
        elif writers and classes[writers[0]].writer == "recovering":
            self._end_recovery(project, writers[0], classes)

    def _end_recovery(self, project: str, writer: str, classes: Classes) -> None:
        """Declare a writer `here` once it has what was at the others when they were seen to take copies alone."""
        links = [one for one in self._links[project] if one.target.name == writer]
        others = self._sites(self._links[project]).keys() - {writer}
        if unknown := others - ({one.source.name for one in links} & classes.keys()):
            raise FailedPrecondition(
                f"{writer} is recovering until {' and '.join(sorted(unknown))} can be compared with it: that takes a"
                " link from there, an answer, and the class billing"
            )
        flows = self._servers.flows(links)
        declared_at = sorted((site, one.since.ToNanoseconds()) for site, one in classes.items())
        if project not in self._ends or self._ends[project][0] != declared_at:  # another one may have written since
            self._ends[project] = declared_at, {flow.name: self._end_of(flow) for flow in flows}
        ends = self._ends[project][1]
        for flow in flows:
            known = begin_at(self._servers, flow)  # by what is stored at the writer
            stored = json.loads(known) if known.startswith("{") else {}
            if any(stored.get(str(source), 0) < end for source, end in ends.get(flow.name, {}).items()):
                return
        self._declare(project, writer, "here", classes)
        del self._ends[project]
        log.warning("%s: %s has all that other sites had, and is the only writer again", project, writer)

    def _end_of(self, flow: Flow) -> dict[int, int]:
        return {one.source: one.end for one in self._servers.positions_of(flow).sources if one.begin < one.end}

    def _declare(self, project: str, site: str, writer: str, classes: Classes) -> None:
        made = admin.DisasterClass(name=BILLING, writer=writer, since=classes[site].since)
        request = admin.SetDisasterClassRequest(resource=project, disaster_class=made)
        self._servers.call(self._sites(self._links[project])[site], "Admin.SetDisasterClass", request)

    def _sites(self, links: Iterable[FederationLink]) -> dict[str, FederatedCluster]:
        return {one.name: one for link in links for one in (link.source, link.target)}

    def _try(self, about: str, what: str, work: Callable[[], None]) -> None:
        try:
            work()
        except SyncpointError as error:
            why = str(error)
            if self._why.get((about, what)) != why:
                log.warning("classes of %s, %s: checked again later: %s", about, what, why)
            self._why[about, what] = why
        else:
            self._why.pop((about, what), None)


class ClassThreads:
    """Both duties in threads of their own: a reconciliation takes minutes, and a fence must not wait for it."""

    def __init__(self, links: Sequence[FederationLink]) -> None:
        self._links, self._stopping = links, threading.Event()
        turns = ((ClassDuties.look, LOOK_S), (ClassDuties.reconcile_daily, DAILY_LOOK_S))
        self._threads = [threading.Thread(target=self._run, args=one, daemon=True) for one in turns]

    def start(self) -> None:
        """Begin."""
        for one in self._threads:
            one.start()

    def stop(self) -> None:
        """End; what is under way goes on until its call is answered, or the program ends."""
        self._stopping.set()

    def _run(self, turn: Callable[[ClassDuties], None], every_s: float) -> None:
        with Servers() as servers:
            duties = ClassDuties(self._links, servers)
            while True:
                try:
                    turn(duties)
                except Exception:
                    log.exception("classes of projects were not checked; it is tried again")
                if self._stopping.wait(every_s):
                    return
