"""What commands that run a batch job on Spark share: the session, its master, and the server that is read.

Place: under `archive` and `analyze`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from syncpoint.cli.output import said
from syncpoint.cli.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from syncpoint.federation.spec import FederatedCluster

master_option = click.option("--master", default="local[*]", show_default=True, help="Spark's master.")


def server_of(settings: Settings) -> FederatedCluster:
    """The server of the command line, as federation names servers."""
    from syncpoint.federation.spec import FederatedCluster

    files = {"ca": settings.tls_ca, "cert": settings.tls_cert, "key": settings.tls_key}
    tls = {name: path for name, path in files.items() if path} or None
    return FederatedCluster("server", settings.endpoint, tls)


@contextmanager
def local_spark(name: str, master: str) -> Iterator[SparkSession]:
    """A session of Spark for one command, stopped at its end."""
    import pyspark  # noqa: F401

    from syncpoint.federation.session import session

    said("starting Spark")
    spark = session(name, master)
    try:
        yield spark
    finally:
        spark.stop()
