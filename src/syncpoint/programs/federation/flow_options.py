"""The options of the `pubsub` format for the flows of a link: what its source reads, and what its sink keeps to.

Place: between plans and Spark. Secrets are named, never given, so all of this may be shown. What differs from flow to
flow stands in a file (`pyspark_pubsub.flows_file`).
"""

from __future__ import annotations

from pathlib import Path

from syncpoint.programs.federation.flow_plan import FederationLink
from syncpoint.programs.federation.spec import FederatedCluster, Runtime
from syncpoint.programs.federation.transform import columns, looked_for

BLOCK_BYTES = 1 << 20  # above some MiB the JVM takes fresh memory for each block, which costs more than the copying


def reading(link: FederationLink, runtime: Runtime, flows: Path | str, *, shared: bool = False) -> dict[str, str]:
    """Options of the source of these flows. `shared`: there may be several."""
    options = {
        **access(link.source),
        "flows": str(flows),
        "columns": ",".join(columns(link, shared=shared)),
        **selecting(link),
        "maxRowsPerTrigger": str(runtime.max_rows),
        "maxBytesPerTrigger": str(runtime.max_bytes),
        "failOnDataLoss": str(link.change.loss == "fail").lower(),
    }
    look = looked_for(link)
    if look is not None:
        options |= look.options
    if link.unchanged:
        options["fetchBytes"] = str(BLOCK_BYTES)
    return options


def selecting(link: FederationLink) -> dict[str, str]:
    """Which messages of a topic a link is for at all, so that nothing goes round."""
    options = {} if link.returns else {"notVisited": link.target.name}
    if link.origins is not None:
        options["origins"] = ",".join(origin or "original" for origin in link.origins)
    return options


def writing(link: FederationLink, flows: Path | str, checkpoint: Path | str) -> dict[str, str]:
    """Options of the sink of these flows."""
    return {
        **access(link.target),
        "flows": str(flows),
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
