"""What federation asks of the servers themselves: which topics there are, how far the flows are.

Place: under the supervisor, the job and the status table; blocking calls, each bounded in time. Nothing here needs
Spark.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from syncpoint.base.model.errors import Code, FailedPrecondition, InvalidArgument, SyncpointError
from syncpoint.front.client.client import Client, client_tls
from syncpoint.programs.federation.flow_plan import FederationLink, Flow
from syncpoint.programs.federation.spec import FederatedCluster
from syncpoint.wire.protobuf.messages import pipeline, pubsub
from syncpoint.wire.protobuf.status import missing_permission
from syncpoint.wire.protobuf.token_commands import TokenCommandError, token_command

CALL_S = 10.0
STREAM_RETENTION_S = 7 * 86_400  # of a topic that is made for what comes from a stream
SERVER_IS_GONE = (Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED)


@dataclass(frozen=True, slots=True)
class FlowProgress:
    """How far a flow is, in messages; `lag` None: the source does not answer. What was counted stands at the target."""

    flow: Flow
    lag: int | None
    lag_bytes: int = 0
    rows: int = 0
    bytes: int = 0
    epochs: int = 0
    duplicates_dropped: int = 0
    gaps_refused: int = 0
    skipped: int = 0
    gap: str = ""  # the one that stops the flow
    committed_at: float = 0.0  # seconds since 1970; 0: never
    paused: bool = False  # by a user, in the state folder
    silent: Mapping[str, str] = field(default_factory=dict)  # who does not answer, and what was received instead

    @property
    def error(self) -> str:
        """All of that in one line."""
        return "; ".join(self.silent.values())

    @property
    def target_known(self) -> bool:
        """Whether the target has answered: what was counted stands there."""
        return self.flow.link.target.name not in self.silent

    @property
    def waiting(self) -> int:
        """Messages that Spark has something to do for, as far as is known: what a stream has, only Spark can see."""
        unseen = self.lag is None and self.flow.link.source.stream is not None
        return 1 if unseen else self.lag or 0


class Servers:
    """Connections to the clusters of a federation, opened when they are needed; used from one thread."""

    def __init__(self, *, patience_s: float = 2.0, call_s: float = CALL_S) -> None:
        self._clients: dict[str, Client] = {}
        self._patience_s, self._call_s = patience_s, call_s
        self._turn = 0  # of the flows without a cursor: where the next turn begins
        self._lags: dict[str, tuple[int | None, int]] = {}  # as they were last known

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        clients, self._clients = self._clients, {}
        for client in clients.values():
            client.close()

    def call(self, cluster: FederatedCluster, method: str, request: Any) -> Any:
        """Call `Service.Method`. Raises `SyncpointError`."""
        with _named(cluster, method):
            return self._client(cluster).call(method, request, timeout_s=self._call_s)

    def _client(self, cluster: FederatedCluster) -> Client:
        client = self._clients.get(cluster.name)
        if client is None:
            client = self._clients[cluster.name] = connect(cluster, self._patience_s)
        return client

    def topics(self, cluster: FederatedCluster, project: str) -> list[str]:
        """Full names of a project's topics. Raises `SyncpointError`."""
        request = pubsub.ListTopicsRequest(project=f"projects/{project}", page_size=1000)
        with _named(cluster, "Publisher.ListTopics"):
            return [topic.name for topic in self._client(cluster).pages("Publisher.ListTopics", request, "topics")]

    def flows(self, links: Iterable[FederationLink]) -> list[Flow]:
        """The flows of links for the topics that exist now. Raises `SyncpointError`."""
        topics: dict[tuple[str, str], list[str]] = {}
        found: list[Flow] = []
        for link in links:
            key = link.source.name, link.source_project
            if link.source.stream is not None:
                topics[key] = []
            if key not in topics:
                topics[key] = self.topics(link.source, link.source_project)
            found += link.flows(topics[key])
        return found

    def reported_flows(self, links: Iterable[FederationLink]) -> tuple[list[Flow], dict[str, str]]:
        """The flows of links whose sources answer; and of the other sources, what was received instead."""
        found: list[Flow] = []
        silent: dict[str, str] = {}
        for link in links:
            if link.source.name in silent:
                continue
            try:
                found += self.flows([link])
            except SyncpointError as error:
                silent[link.source.name] = str(error)
        return found, silent

    def able(self, links: Iterable[FederationLink]) -> None:
        """Return if every server of these links serves data pipelines. Raises `SyncpointError` naming the one that
        does not, or does not answer.
        """
        links = list(links)
        for cluster, project in {link.source.name: (link.source, link.source_project) for link in links}.values():
            if cluster.stream is not None:
                continue
            try:
                self.call(cluster, "LogReader.ListCursors", pipeline.ListCursorsRequest(project=f"projects/{project}"))
            except SyncpointError as error:
                if error.code is not Code.PERMISSION_DENIED:  # of the whole project; flows ask topic by topic
                    raise
        for cluster in {link.target.name: link.target for link in links if link.target.stream is None}.values():
            self.call(cluster, "EpochWriter.ListLinks", pipeline.ListLinksRequest())

    def ensure_target(self, flow: Flow) -> None:
        """Create the topics a flow writes to, set up as the one it reads. Raises `SyncpointError`."""
        for error in self.ensure_targets([flow]).values():
            raise error

    def ensure_targets(self, flows: Sequence[Flow]) -> dict[str, SyncpointError]:
        """Create missing target topics of many flows, listing topics once per project; returns failures by flow."""
        known: dict[tuple[str, str], set[str]] = {}
        failed: dict[str, SyncpointError] = {}
        for flow in flows:
            if flow.link.target.stream is not None:
                continue
            try:
                for name in (flow.target_topic, *flow.link.steps.topics):
                    target, project = flow.link.target, name.split("/")[1]
                    if (target.name, project) not in known:
                        known[target.name, project] = set(self.topics(target, project))
                    if name not in known[target.name, project]:
                        self._ensure_topic(flow, name)
                        known[target.name, project].add(name)
            except SyncpointError as error:
                failed[flow.name] = error
                if error.code in SERVER_IS_GONE:
                    return dict.fromkeys((one.name for one in flows), error)
        return failed

    def _ensure_topic(self, flow: Flow, name: str) -> None:
        link = flow.link
        if link.source.stream is not None:
            # A later subscriber finds earlier copies by a seek.
            made = pubsub.Topic(name=name, message_retention_duration={"seconds": STREAM_RETENTION_S})
        else:
            topic = self.call(link.source, "Publisher.GetTopic", pubsub.GetTopicRequest(topic=flow.source_topic))
            made = pubsub.Topic(name=name, labels=dict(topic.labels))
            if topic.HasField("message_retention_duration"):
                made.message_retention_duration.CopyFrom(topic.message_retention_duration)
        try:
            self.call(link.target, "Publisher.CreateTopic", made)
        except SyncpointError as error:
            if error.code is not Code.ALREADY_EXISTS:  # another flow was first
                raise

    # -- how far flows are ---------------------------------------------------------------------------------------------

    def lag(self, flow: Flow) -> tuple[int | None, int]:
        """Messages and bytes a flow has not copied yet; None: of a stream, which only Spark sees. Raises
        `SyncpointError`.
        """
        link = flow.link
        if link.source.stream is not None:
            return None, 0
        cursors = self.call(link.source, "LogReader.ListCursors", pipeline.ListCursorsRequest(topic=flow.source_topic))
        for cursor in cursors.cursors:
            if cursor.name == flow.name:
                return cursor.lag_messages, cursor.lag_bytes
        if link.change.start == "latest":
            return 1, 0  # it has to begin, so that it begins where the topic ends now
        positions = self.call(
            link.source, "LogReader.GetPositions", pipeline.GetPositionsRequest(topic=flow.source_topic)
        )
        counts = [(one.end - one.begin, one.mean_bytes) for one in positions.sources]
        return sum(count for count, _ in counts), sum(count * size for count, size in counts)

    def progress(self, flow: Flow) -> FlowProgress:
        """How far a flow is; `error` names the servers that do not answer."""
        lag: int | None = None
        lag_bytes, silent = 0, dict[str, str]()
        link = flow.link
        try:
            lag, lag_bytes = self.lag(flow)
        except SyncpointError as error:
            silent[link.source.name] = str(error)
        try:
            known = self.link_of(flow)
        except SyncpointError as error:
            known = None
            silent[link.target.name] = str(error)
        return _reported(flow, (lag, lag_bytes), known, silent)

    def link_of(self, flow: Flow) -> Any:
        """What the target knows of a flow; None: nothing, or it is a stream. Raises `SyncpointError`."""
        if flow.link.target.stream is not None:
            return None
        request = pipeline.ListLinksRequest(name=flow.name)
        found = self.call(flow.link.target, "EpochWriter.ListLinks", request).links
        return found[0] if found else None

    def progress_of(self, flows: Sequence[Flow], asked_max: int | None = None) -> list[FlowProgress]:
        """How far all these flows are, as `progress` does for one, with one call for each project of a source and one
        for each target. Flows that have not begun have no cursor, and cost a call each: at most `asked_max` of them are
        asked about, in turns, and the others stand where they stood in theirs; before it, their lag is None.
        """
        sources = {source_of(flow): flow.link for flow in flows}
        cursors = {key: self.cursors_in(link.source, link.source_project) for key, link in sources.items()}
        targets = {flow.link.target.name: flow.link.target for flow in flows}
        links = {name: self.links_at(target) for name, target in targets.items()}
        turn = self._next_turn([flow for flow in flows if _begins_later(flow, cursors)], asked_max)
        return [self._one_of(flow, cursors, links, flow.name in turn) for flow in flows]

    def cursors_in(self, source: FederatedCluster, project: str) -> dict[str, Any] | SyncpointError:
        """The cursors of a project by name; a stream has none."""
        if source.stream is not None:
            return {}
        request = pipeline.ListCursorsRequest(project=f"projects/{project}")
        try:
            return {one.name: one for one in self.call(source, "LogReader.ListCursors", request).cursors}
        except SyncpointError as error:
            return error

    def links_at(self, target: FederatedCluster) -> dict[str, Any] | SyncpointError:
        """The links of a target by name; a stream has none."""
        if target.stream is not None:
            return {}
        try:
            found = self.call(target, "EpochWriter.ListLinks", pipeline.ListLinksRequest()).links
            return {one.name: one for one in found}
        except SyncpointError as error:
            return error

    def _next_turn(self, waiting: Sequence[Flow], most: int | None) -> set[str]:
        """The names of the flows without a cursor that are asked about now: each as often as the others."""
        at = self._turn % len(waiting) if waiting and most is not None else 0
        self._turn = at + (most or 0)
        return {flow.name for flow in (*waiting[at:], *waiting[:at])[:most]}

    def _one_of(self, flow: Flow, cursors: _Known, links: _Known, turn: bool) -> FlowProgress:
        """A flow's progress from what is known of its ends."""
        silent: dict[str, str] = {}
        lag: tuple[int | None, int] = self._lags.get(flow.name, (None, 0))
        known = cursors[source_of(flow)]
        if isinstance(known, dict) and flow.name in known:
            lag = known[flow.name].lag_messages, known[flow.name].lag_bytes
        elif turn or (isinstance(known, SyncpointError) and known.code is Code.PERMISSION_DENIED):
            try:
                lag = self.lag(flow)  # of this topic alone, which may be allowed where the project is not
            except SyncpointError as error:
                lag, silent[flow.link.source.name] = (None, 0), str(error)
        elif isinstance(known, SyncpointError):
            lag, silent[flow.link.source.name] = (None, 0), str(known)
        self._lags[flow.name] = lag
        found = links[flow.link.target.name]
        if isinstance(found, SyncpointError):
            silent[flow.link.target.name] = str(found)
            found = {}
        return _reported(flow, lag, found.get(flow.name), silent)

    def positions_of(self, flow: Flow) -> Any:
        """What the source stores of a flow's topic. Raises `SyncpointError`."""
        request = pipeline.GetPositionsRequest(topic=flow.source_topic)
        return self.call(flow.link.source, "LogReader.GetPositions", request)

    def cursor(self, flow: Flow) -> Any:
        """The cursor of a flow, or None. Raises `SyncpointError`."""
        if flow.link.source.stream is not None:
            return None
        request = pipeline.ListCursorsRequest(topic=flow.source_topic)
        found = self.call(flow.link.source, "LogReader.ListCursors", request).cursors
        return next((one for one in found if one.name == flow.name), None)

    def lost(self, flow: Flow) -> list[Any]:
        """What was deleted at the source before the flow had read it, as ranges. Raises `SyncpointError`."""
        cursor = self.cursor(flow)
        return [] if cursor is None else list(cursor.lost)

    def accept_gap(self, flow: Flow) -> Any:
        """Let a flow continue after the gap that stops it; returns the link. Raises `SyncpointError`."""
        return self.call(flow.link.target, "EpochWriter.AcceptGap", pipeline.AcceptGapRequest(link=flow.name))


_Known = Mapping[Any, "dict[str, Any] | SyncpointError"]


def source_of(flow: Flow) -> tuple[str, str]:
    """Where its topic and its cursor are: cluster and project."""
    return flow.link.source.name, flow.link.source_project


def _begins_later(flow: Flow, cursors: _Known) -> bool:
    """Whether a flow has no cursor yet, where cursors are known."""
    known = cursors[source_of(flow)]
    return isinstance(known, dict) and flow.name not in known


def _reported(flow: Flow, lag: tuple[int | None, int], known: Any, silent: Mapping[str, str]) -> FlowProgress:
    """`known`: the link at the target; None: it has copied nothing, or the target does not answer."""
    if known is None:
        return FlowProgress(flow, *lag, silent=silent)
    return FlowProgress(
        flow,
        *lag,
        rows=known.rows,
        bytes=known.bytes,
        epochs=known.epochs,
        duplicates_dropped=known.duplicates_dropped,
        gaps_refused=known.gaps_refused,
        skipped=sum(one.end - one.begin for one in known.skipped),
        gap=", ".join(f"source {one.source}: {one.begin} to {one.end - 1}" for one in known.refused),
        committed_at=known.committed_at.seconds + known.committed_at.nanos / 1e9,
        silent=silent,
    )


@contextmanager
def _named(cluster: FederatedCluster, method: str) -> Iterator[None]:
    """Failures say which cluster of the file they are about."""
    who = f"{cluster.name} ({cluster.endpoint})"
    try:
        yield
    except SyncpointError as error:
        if error.code is Code.UNIMPLEMENTED and method.startswith(("LogReader.", "EpochWriter.", "AckExchange.")):
            raise FailedPrecondition(f"{who} runs a version that does not support data pipelines") from error
        if error.code is Code.PERMISSION_DENIED:
            missing = missing_permission(error.details) or "a role with this permission"
            raise SyncpointError(error.code, f"{who}: the account used there needs {missing}") from error
        if error.code in (Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED):
            raise SyncpointError(error.code, f"{who} does not answer: {error.message}") from error
        raise


def connect(cluster: FederatedCluster, patience_s: float) -> Client:
    """A client of a cluster. Raises `InvalidArgument` when a certificate or a secret cannot be read."""
    tls = None
    if cluster.tls is not None:
        try:
            tls = client_tls(cluster.tls.get("ca"))
            if "cert" in cluster.tls:
                tls.load_cert_chain(cluster.tls["cert"], cluster.tls.get("key"))
        except OSError as error:
            raise InvalidArgument(
                f"clusters.{cluster.name}.tls", f"{error.filename or 'a file'}: {error.strerror}"
            ) from None
    credentials = None if cluster.token is None else ClusterToken(cluster)
    return Client(cluster.endpoint, tls=tls, patience_s=patience_s, credentials=credentials)


class ClusterToken:
    """The token of a cluster as each call shows it: what its file, variable or command has then."""

    def __init__(self, cluster: FederatedCluster) -> None:
        """Raises `InvalidArgument` when there is none."""
        self._cluster = cluster
        read_token(cluster)

    def metadata(self) -> tuple[tuple[bytes, bytes], ...]:
        """The header of a call. Raises `InvalidArgument`."""
        return ((b"authorization", f"Bearer {read_token(self._cluster)}".encode()),)


def read_token(cluster: FederatedCluster) -> str:
    """The token of a cluster, from the place that the file names. Raises `InvalidArgument`, which does not show it."""
    token = cluster.token or {}
    place = f"clusters.{cluster.name}.token"
    if "env" in token:
        value = os.environ.get(token["env"], "")
        if not value:
            raise InvalidArgument(place, f"the environment has no variable {token['env']}")
        return value
    if "command" in token:
        try:
            return token_command(token["command"]).token()
        except TokenCommandError as error:
            raise InvalidArgument(place, str(error)) from None
    try:
        return Path(token["file"]).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise InvalidArgument(place, f"{token['file']} cannot be read: {error.strerror}") from None
