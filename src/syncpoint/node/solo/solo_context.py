"""What the roles of a node have in common: its data folder, the copy of its catalog, its clock that is trusted.

Place: made first by `node`, handed to the roles, as `cluster.context` is to those of a cluster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import syncpoint
from syncpoint.base.model.flow import FlowLimits
from syncpoint.base.runtime.trusted import TrustedClock
from syncpoint.base.tracing.otlp_tracer import tracer_of
from syncpoint.broker.recording.recorder import Recorder
from syncpoint.broker.recording.recorder_driver import RecorderDriver
from syncpoint.catalog.metadata.mirror import CatalogMirror, Identities
from syncpoint.cluster.control.solo_ownership import LogCatalog
from syncpoint.node.node_environment import NodeEnvironment
from syncpoint.node.process_monitor import ProcessMonitor
from syncpoint.node.settings import ServeSettings
from syncpoint.watch.metrics.kept_text import MetricsText

NODE: Final = "node"


class SoloContext:
    """The state that the roles of a node share.

    `name`: never the name of another process; `trusted`: a clock that a single wrong reading does not move; `opened`:
    the listener's address, once it listens.
    """

    metrics: MetricsText
    publish_own: Callable[[str, bytes], Awaitable[bytes]]

    def __init__(self, settings: ServeSettings, environment: NodeEnvironment) -> None:
        self.settings, self.environment, self.name = settings, environment, ""
        self.clock, self.random = environment.clock, environment.random
        self.monitor = ProcessMonitor(environment)
        self.tracer = tracer_of(settings.tracing, NODE, syncpoint.__version__, self.clock, self.random)
        self.opened: Callable[[], list[str]] = list
        self._locks = environment.make_locks()

    async def join(self) -> None:
        """Lock the data folder, and open the metadata. Raises `FailedPrecondition` where another server has it."""
        environment, data = self.environment, self.settings.data
        environment.keep_memory()
        self._locks.take(data)
        self.metadata = environment.open_metadata(data / "metadata.sqlite", self.clock, self.random)
        self.identities, self.mirror = Identities(self.metadata), CatalogMirror(self.metadata)
        self.trusted, self.limits, self.shared = TrustedClock(self.clock), FlowLimits(), LogCatalog()
        recorder = Recorder(NODE, self.trusted.time_ns)
        self.recording = RecorderDriver(recorder, lambda topic, request: self.publish_own(topic, request))

    async def close(self) -> None:
        """Let others have the folder."""
        if self.tracer is not None:
            await asyncio.to_thread(self.tracer.close)
        self.mirror.flush()
        self.metadata.close()
        self._locks.release()

    def listeners(self) -> list[str]:
        """HOST:PORT of whatever listens for this deployment, which is this process."""
        return [one for one in self.opened() if one]
