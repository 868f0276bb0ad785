"""The three houses in which everything has to be alike: one server, `serve --workers`, a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from syncpoint.programs.clusters.local import Shape
from syncpoint.testing.server_process import ServerProcess
from tests.kit.clusters import Kit

KINDS: Final = ("node", "workers", "cluster")
ISSUER, MODEL = "https://pubsub.example", "projects/p/locations/l/endpoints/sentiment"
SHAPE = Shape(clusters=1, disks=3, forwarders=2, routers=1, proxies=1)


@contextmanager
def house_of(kind: str, folder: Path, model_url: str) -> Iterator[str]:
    """Start one of KINDS, with a bucket and a model; where it is served."""
    (folder / "bucket").mkdir()
    if kind == "cluster":
        push = {"networks": ["loopback"], "issuer": ISSUER}
        kit = Kit(
            folder, SHAPE, {"push": push, "buckets": {"archive": str(folder / "bucket")}, "models": {MODEL: model_url}}
        )
        try:
            yield kit.up().proxies[0]
        finally:
            kit.down()
        return
    args = ["--push-network", "loopback", "--bucket", f"archive={folder}/bucket"]
    args += ["--push-issuer", ISSUER, "--model", f"{MODEL}={model_url}"]
    args += ["--workers", "2"] if kind == "workers" else []
    server = ServerProcess(folder / "data", args=args)
    try:
        yield server.start().endpoint
    finally:
        server.close()
