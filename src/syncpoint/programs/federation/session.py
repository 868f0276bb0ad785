"""The Spark session of federation: settings that matter, each with its reason.

`local[*]` is the default; with spark-submit the master comes from the command line and is left alone.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from syncpoint.programs.federation.spark_home import quick_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Spark from PyPI forks a `chmod` for every checkpoint file it writes through its checksumming local file system, some
# 60 ms of every batch. The raw one does not; checkpoints may then be older than they should after a power cut, which
# links are safe against: the target knows what it has.
QUICK_CHECKPOINTS = {
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}
# Two of those `chmod` are left in a batch; this way each of them starts one process, not two.
QUICK_FORKS = {"spark.driver.defaultJavaOptions": "-Djdk.lang.Process.launchMechanism=VFORK"}
SETTINGS = {
    **QUICK_CHECKPOINTS,
    **(QUICK_FORKS if sys.platform.startswith("linux") else {}),
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    # Over TCP each start of a Python worker's task waits 40 ms for an acknowledgement that the kernel puts off.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.execution.arrow.maxBytesPerBatch": "1048576",  # memory of that size is used again, of 100 MB not
    # Every broadcast of a table takes a page, however small the table is. Spark's own size, 16 MB or more, has G1 mark
    # the whole heap once in each batch.
    "spark.buffer.pageSize": "2m",
    "spark.speculation": "false",  # a second attempt stages everything again, for nothing
    "spark.sql.streaming.stopTimeout": "20s",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",  # a field that is set takes the place of the one that is there
}


def session(name: str, master: str | None = None, settings: Mapping[str, str] | None = None) -> SparkSession:
    """The session, made when there is none. `master` None: that of spark-submit."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name)
    if master is not None:
        builder = builder.master(master)
        os.environ["SPARK_HOME"] = str(quick_home())
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        if master.startswith("local"):  # elsewhere its workers have a Python of their own
            builder = builder.config("spark.python.daemon.module", "syncpoint.programs.federation.quiet_daemon")
    for key, value in {**SETTINGS, **(settings or {})}.items():
        if master is None and key.startswith("spark.driver.") and key not in (settings or {}):
            continue  # on a real cluster, executors must reach the driver by an address of its own
        builder = builder.config(key, value)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    for one in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        logging.getLogger(one).disabled = True  # every error as pages of JSON, before the caller reports it
    return made
