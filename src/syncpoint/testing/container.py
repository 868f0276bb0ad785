"""A server with the methods that testcontainers gives to one in a container, without Docker: a process of its own.

Place: in tests that were written for testcontainers' `PubSubContainer`; only the class's name and the import change.
Promises: `start` returns once the server answers, `stop` ends the process and deletes its data, and every object has
a server of its own. Options for Docker do not exist here.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self
from unittest import mock

from syncpoint.testing.running_server import FOR_TESTS, PROJECT
from syncpoint.testing.server_process import ServerProcess


class SyncpointContainer:
    """A server for tests; a context manager. `project`: what its clients use; projects need not be created."""

    def __init__(self, *, project: str = PROJECT, port: int = 0, args: Sequence[str] = ()) -> None:
        """`port` 0: a free one; `args`: further options of `syncpoint serve`."""
        self.project = project
        self._process = ServerProcess(port=port, args=[*FOR_TESTS, *args])

    def start(self) -> Self:
        """Start the server. Raises `ServerFailed` with its output if it does not become ready."""
        self._process.start()
        return self

    def stop(self, force: bool = True, delete_volume: bool = True) -> None:
        """End the server and delete its data; what testcontainers calls its options makes no difference."""
        self._process.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def get_emulator_host(self) -> str:
        """HOST:PORT, for PUBSUB_EMULATOR_HOST."""
        return self._process.endpoint

    def get_container_host_ip(self) -> str:
        """The host."""
        return self._process.host

    def get_exposed_port(self, port: int | None = None) -> int:
        """The port; `port`, that of a container, makes no difference."""
        return self._process.port

    def get_logs(self) -> tuple[bytes, bytes]:
        """What the server has printed so far, on standard output and standard error together."""
        return self._process.logs().encode(), b""

    def get_publisher_client(self, **options: Any) -> Any:
        """A publisher client of Google's library for this server."""
        from google.cloud import pubsub_v1

        return self._client(pubsub_v1.PublisherClient, options)

    def get_subscriber_client(self, **options: Any) -> Any:
        """A subscriber client of Google's library for this server."""
        from google.cloud import pubsub_v1

        return self._client(pubsub_v1.SubscriberClient, options)

    def _client(self, kind: Any, options: dict[str, Any]) -> Any:
        with mock.patch.dict(os.environ, PUBSUB_EMULATOR_HOST=self.get_emulator_host()):
            return kind(**options)
