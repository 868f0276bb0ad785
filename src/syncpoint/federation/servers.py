"""What federation asks of the servers themselves: which topics there are, how far the flows are.

Place: under the supervisor, the job and the status table; blocking calls, each bounded in time. Nothing here needs
Spark.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from syncpoint.client.client import Client, client_tls
from syncpoint.federation.flow_plan import FederationLink, Flow
from syncpoint.federation.spec import FederatedCluster
from syncpoint.model.errors import Code, FailedPrecondition, InvalidArgument, SyncpointError
from syncpoint.wire.messages import pipeline, pubsub

CALL_S = 10.0


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
    silent: Mapping[str, str] = field(default_factory=dict)  # who does not answer, and what was received instead

    @property
    def error(self) -> str:
        """All of that in one line."""
        return "; ".join(self.silent.values())


class Servers:
    """Connections to the clusters of a federation, opened when they are needed; used from one thread."""

    def __init__(self, *, patience_s: float = 2.0) -> None:
        self._clients: dict[str, Client] = {}
        self._patience_s = patience_s

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
            return self._client(cluster).call(method, request, timeout_s=CALL_S)

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
        for cluster in {end.name: end for link in links for end in (link.source, link.target)}.values():
            self.call(cluster, "EpochWriter.ListLinks", pipeline.ListLinksRequest())

    def ensure_target(self, flow: Flow) -> None:
        """Create the topic a flow writes to, set up as the one it reads. Raises `SyncpointError`."""
        link = flow.link
        if flow.target_topic in self.topics(link.target, link.target_project):
            return
        topic = self.call(link.source, "Publisher.GetTopic", pubsub.GetTopicRequest(topic=flow.source_topic))
        made = pubsub.Topic(name=flow.target_topic, labels=dict(topic.labels))
        if topic.HasField("message_retention_duration"):
            made.message_retention_duration.CopyFrom(topic.message_retention_duration)
        try:
            self.call(link.target, "Publisher.CreateTopic", made)
        except SyncpointError as error:
            if error.code is not Code.ALREADY_EXISTS:  # another flow was first
                raise

    # -- how far flows are ---------------------------------------------------------------------------------------------

    def lag(self, flow: Flow) -> tuple[int, int]:
        """Messages and bytes a flow has not copied yet. Raises `SyncpointError`."""
        link = flow.link
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
        lag, lag_bytes, silent = None, 0, dict[str, str]()
        link = flow.link
        try:
            lag, lag_bytes = self.lag(flow)
        except SyncpointError as error:
            silent[link.source.name] = str(error)
        try:
            found = self.call(link.target, "EpochWriter.ListLinks", pipeline.ListLinksRequest(name=flow.name)).links
        except SyncpointError as error:
            found = []
            silent[link.target.name] = str(error)
        if not found:
            return FlowProgress(flow, lag, lag_bytes, silent=silent)
        known = found[0]
        return FlowProgress(
            flow,
            lag,
            lag_bytes,
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

    def begin_at(self, flow: Flow) -> str:
        """The `startingPosition` of a flow without a checkpoint: where its target is, if it has copied anything, else
        what the file says. Raises `SyncpointError`.
        """
        found = self.call(flow.link.target, "EpochWriter.ListLinks", pipeline.ListLinksRequest(name=flow.name)).links
        request = pipeline.GetPositionsRequest(topic=flow.source_topic)
        positions = self.call(flow.link.source, "LogReader.GetPositions", request)
        topic = f"{positions.universe}/{positions.topic_incarnation}"
        if not found or found[0].source_topic != topic:
            return flow.link.change.start  # of another topic under the same name: the target refuses it
        ends = {one.source: one.end for one in found[0].committed}
        newest: dict[int, int] = {}
        for one in found[0].committed:
            newest[one.chain] = max(one.source, newest.get(one.chain, 0))
        starts: dict[str, int] = {}
        for one in positions.sources:
            if one.source in ends:
                starts[str(one.source)] = min(max(ends[one.source], one.begin), one.end)
            elif one.source < newest.get(one.chain, 0):
                starts[str(one.source)] = one.end  # the link has gone on to a later one of the chain
        return json.dumps(starts) if starts else "earliest"

    def lost(self, flow: Flow) -> list[Any]:
        """What was deleted at the source before the flow had read it, as ranges. Raises `SyncpointError`."""
        cursors = self.call(
            flow.link.source, "LogReader.ListCursors", pipeline.ListCursorsRequest(topic=flow.source_topic)
        )
        return [gap for cursor in cursors.cursors if cursor.name == flow.name for gap in cursor.lost]

    def accept_gap(self, flow: Flow) -> Any:
        """Let a flow go on behind the gap that stops it; returns the link. Raises `SyncpointError`."""
        return self.call(flow.link.target, "EpochWriter.AcceptGap", pipeline.AcceptGapRequest(link=flow.name))


@contextmanager
def _named(cluster: FederatedCluster, method: str) -> Iterator[None]:
    """Failures say which cluster of the file they are about."""
    who = f"{cluster.name} ({cluster.endpoint})"
    try:
        yield
    except SyncpointError as error:
        if error.code is Code.UNIMPLEMENTED and method.startswith(("LogReader.", "EpochWriter.")):
            raise FailedPrecondition(f"{who} does not serve data pipelines: it is of a version without them") from error
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
    metadata = []
    if cluster.token is not None:
        metadata.append((b"authorization", f"Bearer {read_token(cluster)}".encode()))
    return Client(cluster.endpoint, tls=tls, patience_s=patience_s, metadata=tuple(metadata))


def read_token(cluster: FederatedCluster) -> str:
    """The token of a cluster, from where the file says it is. Raises `InvalidArgument`, which does not show it."""
    token = cluster.token or {}
    place = f"clusters.{cluster.name}.token"
    if "env" in token:
        value = os.environ.get(token["env"], "")
        if not value:
            raise InvalidArgument(place, f"the environment has no variable {token['env']}")
        return value
    try:
        return Path(token["file"]).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise InvalidArgument(place, f"{token['file']} cannot be read: {error.strerror}") from None
