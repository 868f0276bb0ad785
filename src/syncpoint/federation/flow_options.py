"""The options of the `pubsub` format for one flow: what its source reads, and what its sink keeps to.

Place: between plans and Spark. Secrets are named, never given, so all of this may be shown.
"""

from __future__ import annotations

from pathlib import Path

from syncpoint.federation.flow_plan import Flow
from syncpoint.federation.spec import FederatedCluster, Runtime
from syncpoint.federation.transform import columns

BLOCK_BYTES = 1 << 20  # above some MiB the JVM takes fresh memory for each block, which costs more than the copying


def reading(flow: Flow, runtime: Runtime) -> dict[str, str]:
    """Options of the flow's source."""
    link = flow.link
    options = {
        **access(link.source),
        "topic": flow.source_topic,
        "columns": ",".join(columns(link)),
        "cursor": flow.name,
        **({} if link.returns else {"notVisited": link.target.name}),
        "startingPosition": link.change.start,
        "maxRowsPerTrigger": str(runtime.max_rows),
        "maxBytesPerTrigger": str(runtime.max_bytes),
        "failOnDataLoss": str(link.change.loss == "fail").lower(),
    }
    if link.unchanged:
        options["fetchBytes"] = str(BLOCK_BYTES)
    if link.origins is not None:
        options["origins"] = ",".join(origin or "original" for origin in link.origins)
    return options


def writing(flow: Flow, checkpoint: Path | str) -> dict[str, str]:
    """Options of the flow's sink."""
    link = flow.link
    return {
        **access(link.target),
        **({} if link.steps.topics else {"topic": flow.target_topic}),
        "link": flow.name,
        "via": link.source.name,
        **({} if link.returns else {"here": link.target.name}),
        "checkpointLocation": str(checkpoint),
        "failOnDataLoss": str(link.change.loss == "fail").lower(),
    }


def access(cluster: FederatedCluster) -> dict[str, str]:
    """How a source or a sink reaches a cluster."""
    options = {"endpoint": cluster.endpoint}
    if cluster.tls is not None:
        options["tls"] = "true"
        options |= {f"tls.{name}": path for name, path in cluster.tls.items()}
    if cluster.token is not None:
        options |= {f"token.{kind}": place for kind, place in cluster.token.items()}
    return options
