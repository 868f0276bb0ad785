"""What tests of federation and of faults stand on: servers as clusters, messages with numbers, the job in a thread."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from syncpoint.programs.federation.patterns.registry import links_of
from syncpoint.programs.federation.spec import parse
from syncpoint.programs.federation.state import StateFolder
from syncpoint.testing.rigs.log_oracle import Message, Oracle
from syncpoint.testing.rigs.official import Api
from syncpoint.testing.server_process import ServerProcess

PROJECT = "fed"


def name_of(topic: str, project: str = PROJECT) -> str:
    return f"projects/{project}/topics/{topic}"


class Site:
    """One server as a cluster of a federation."""

    def __init__(self, name: str, server: ServerProcess) -> None:
        self.name, self.server = name, server
        self.api = Api(server.endpoint)
        self.oracle = Oracle(server.endpoint)

    def close(self) -> None:
        self.oracle.close()
        self.api.close()
        self.server.close()

    def topic(self, topic: str, project: str = PROJECT) -> str:
        """Create a topic that keeps a day; its full name."""
        name = name_of(topic, project)
        self.api.create_topic({"name": name, "message_retention_duration": {"seconds": 86_400}})
        return name

    def publish(self, topic: str, numbers: Iterable[int], *, size: int = 0, keys: int = 5, **attributes: str) -> None:
        """A message for each number: data, an attribute, and a key of this site's publisher."""
        by_key: dict[str, list[int]] = {}
        for number in numbers:
            by_key.setdefault(f"{self.name}-{number % keys}" if keys else "", []).append(number)
        for key, waiting in by_key.items():
            for at in range(0, len(waiting), 500):
                messages = [
                    {
                        "data": f"{self.name}-{number}".encode().ljust(size, b"."),
                        "attributes": {"n": str(number), "from": self.name, **attributes},
                        "ordering_key": key,
                    }
                    for number in waiting[at : at + 500]
                ]
                self.api.publish({"topic": topic, "messages": messages})

    def log(self, topic: str) -> list[Message]:
        return self.oracle.log(topic)

    def topics(self, project: str = PROJECT) -> set[str]:
        """Full names of a project's topics."""
        return {one.name for one in self.api.list_topics({"project": f"projects/{project}"}).topics}


@contextlib.contextmanager
def sites(names: str, folder: Path) -> Iterator[dict[str, Site]]:
    """Servers named by letters."""
    made: dict[str, Site] = {}
    try:
        for name in names:
            made[name] = Site(name, ServerProcess(folder / name).start())
        yield made
    finally:
        for one in made.values():
            one.close()


@dataclass
class RunningJob:
    """The job of a federation, in a thread of this process."""

    state: StateFolder
    job: Any
    failures: list[BaseException] = field(default_factory=list)


@contextlib.contextmanager
def running_job(spark: Any, content: Mapping[str, Any], folder: Path) -> Iterator[RunningJob]:
    """Run the job of a federation file's content on a session that is there."""
    from syncpoint.programs.federation.job import FederationJob

    federation = parse(content, folder)
    state = StateFolder(federation.runtime.state)
    with job_in_thread(spark, FederationJob(federation, links_of(federation), spark, state), state) as running:
        yield running


@contextlib.contextmanager
def job_in_thread(spark: Any, job: Any, state: StateFolder) -> Iterator[RunningJob]:
    """Run a job that is made already."""
    state.take()
    running = RunningJob(state, job)

    def work() -> None:
        try:
            # Spark looks for sinks written in Python in the session that is active in the thread that begins a query.
            spark._get_j_spark_session_class(spark._jvm).setActiveSession(spark._jsparkSession)
            job.run()
        except BaseException as error:
            running.failures.append(error)

    thread = threading.Thread(target=work, name="federation-job")
    thread.start()
    try:
        yield running
    finally:
        job.stopping.set()
        thread.join(120)
        state.release()
    assert not running.failures, running.failures


def awaited(holds: Callable[[], Any], what: str, within: float = 180.0) -> Any:
    """As `eventually`, with the patience that Spark needs on a busy machine, and not asking all the time."""
    end = time.monotonic() + within
    while not (value := holds()):
        assert time.monotonic() < end, f"not within {within:g} s: {what}"
        time.sleep(0.25)
    return value
