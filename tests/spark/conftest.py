"""One Spark session for all tests, and one real server for each module; a limit for what hangs."""

import contextlib
import os
import re
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
from pyspark.sql import SparkSession

from pyspark_pubsub.rpc import close_idle
from syncpoint.programs.federation.session import SETTINGS
from syncpoint.programs.federation.spark_home import quick_home
from syncpoint.testing.kafka.kafka_jars import KafkaMissing, kafka_jars, spark_jars
from syncpoint.testing.server_process import ServerProcess
from tests.kit import forked_programs
from tests.spark.spark_harness import Topic

forked_programs.install()
HANGS_S = 900  # two cores, with a JVM and several servers on them: a busy machine takes no test so long


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test of this folder has the limit."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.timeout(HANGS_S))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Name the causes of a failure on Spark in the summary, the innermost first; py4j's own line has none of them."""
    report = yield
    crash = getattr(report.longrepr, "reprcrash", None)
    if report.failed and crash is not None and "py4j" in crash.message:
        causes = re.findall(r"^E +(?:: |Caused by: )?(\w+(?:\.\w+)+: .*)$", str(report.longrepr), re.MULTILINE)
        crash.message = " | ".join(one[:300] for one in reversed(causes[-4:])) or crash.message
    return report


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """local[2], with this Python for the workers and nothing on the network but the loopback."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_HOME"] = str(quick_home())  # its Python workers start three times as fast
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    folder = tmp_path_factory.mktemp("spark")
    jars = ""
    if os.environ.get("SYNCPOINT_KAFKA"):
        with contextlib.suppress(KafkaMissing):  # the tests that need them say so
            jars = spark_jars(kafka_jars())
    session = (
        SparkSession.builder.master("local[2]")
        .appName("tests")
        .config("spark.jars", jars)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "1g")
        .config("spark.sql.mapKeyDedupPolicy", SETTINGS["spark.sql.mapKeyDedupPolicy"])
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1")  # no query lives long enough for more
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.local.dir", str(folder / "local"))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")  # failures that tests provoke are asserted, not printed
    yield session
    session.stop()


@pytest.fixture(scope="session")
def jars() -> list[Path]:
    """The jars of a Kafka broker and of Spark's Kafka source; who needs them is skipped where they are not."""
    if not os.environ.get("SYNCPOINT_KAFKA"):
        pytest.skip("not shown: run by make test-kafka")
    try:
        return kafka_jars()
    except KafkaMissing as error:
        pytest.skip(f"not shown: {error}")


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    """A real server, which tests may kill and start again."""
    with ServerProcess() as found:
        yield found
    close_idle()


@pytest.fixture
def topic(server: ServerProcess) -> Topic:
    """A fresh topic."""
    return Topic(server)


@pytest.fixture
def target(server: ServerProcess) -> Topic:
    """Another one, to be written."""
    return Topic(server)


@pytest.fixture
def rows(spark: SparkSession, server: ServerProcess) -> Callable[..., Any]:
    """A batch of a topic, as a data frame."""

    def read(topic: Topic, **options: Any) -> Any:
        reader = spark.read.format("pubsub").option("endpoint", server.endpoint).option("topic", topic.name)
        return reader.options(**options).load()

    return read


@pytest.fixture
def copy(spark: SparkSession, server: ServerProcess, tmp_path: Path) -> Callable[..., Any]:
    """Run a copying query until it has read what there is; its progress. `change`: of the data frame; `read`, `write`:
    more options; `checkpoint`: a name."""

    def run(
        topic: Topic,
        target: Topic,
        *,
        read: dict[str, Any] | None = None,
        write: dict[str, Any] | None = None,
        change: Callable[[Any], Any] = lambda frame: frame,
        checkpoint: str = "checkpoint",
    ) -> list[Any]:
        reader = spark.readStream.format("pubsub").option("endpoint", server.endpoint).option("topic", topic.name)
        writer = (
            change(reader.options(**read or {}).load())
            .writeStream.format("pubsub")
            .option("endpoint", server.endpoint)
            .option("topic", target.name)
            .option("checkpointLocation", str(tmp_path / checkpoint))
            .options(**write or {})
            .trigger(availableNow=True)
        )
        query = writer.start()
        try:
            query.awaitTermination()
        finally:
            query.stop()
        return list(query.recentProgress)

    return run
