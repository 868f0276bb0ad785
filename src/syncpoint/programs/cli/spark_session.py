"""What commands that run a batch job on Spark share: the session, its master, and the server that is read.

Place: under `archive` and `analyze`.
Promise: the server is called with the same certificates and credentials as by other commands. Spark knows where they
are, never what they are: its options are shown in plans and logs.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from syncpoint.programs.cli.output import inform
from syncpoint.programs.cli.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from syncpoint.front.client.credentials import Credentials
    from syncpoint.programs.federation.spec import FederatedCluster

# On one machine Spark fails a job at its first failed task, such as one whose Python worker is lost; 4 has it try each
# task four times, as it does on a cluster.
master_option = click.option("--master", default="local[*,4]", show_default=True, help="Spark's master.")


def server_of(settings: Settings) -> FederatedCluster:
    """The server of the command line, as federation names servers. Raises `Problem` for what no command would use, such
    as a token that would be sent in the clear.
    """
    from syncpoint.programs.federation.spec import FederatedCluster

    with settings.client():  # refuses what it cannot use, and connects to nothing
        credentials = settings.credentials()
    files = {"ca": settings.tls_ca, "cert": settings.tls_cert, "key": settings.tls_key}
    tls = {name: str(Path(path).absolute()) for name, path in files.items() if path} or None
    return FederatedCluster("server", settings.endpoint, tls, None if credentials is None else _place(credentials))


def _place(credentials: Credentials) -> dict[str, str]:
    """Where each process of Spark finds the token: a file, or a command that makes one with a key file."""
    path = str(credentials.path.absolute())
    if not credentials.signing:
        return {"file": path}
    command = [sys.executable, "-m", "syncpoint.programs.cli", "iam", "token", "--credentials", path]
    return {"command": shlex.join(command)}


@contextmanager
def local_spark(name: str, master: str) -> Iterator[SparkSession]:
    """A session of Spark for one command, stopped at its end."""
    import pyspark  # noqa: F401

    from syncpoint.programs.federation.session import session

    inform("starting Spark")
    spark = session(name, master)
    try:
        yield spark
    finally:
        spark.stop()
