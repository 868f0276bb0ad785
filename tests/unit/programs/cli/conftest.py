"""A server made of canned answers, and the command line run against it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import pytest
from click.testing import CliRunner, Result

from syncpoint.base.model.errors import SyncpointError, Unavailable
from syncpoint.programs.cli.main import cli
from syncpoint.programs.cli.settings import Settings


@dataclass
class CannedServer:
    """Answers calls from a table and notes the requests. It is its own client."""

    answers: dict[str, Any] = field(default_factory=dict)
    calls: list[tuple[str, Any]] = field(default_factory=list)
    settings: Settings | None = None
    tls: None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def call(self, method: str, request: Any, *, timeout_s: float | None = None) -> Any:
        self.calls.append((method, request))
        if method not in self.answers and ".List" in method:  # names that a failed command would suggest
            raise Unavailable(f"{method} has no answer")
        answer = self.answers[method]
        if callable(answer):
            answer = answer(request)
        if isinstance(answer, SyncpointError):
            raise answer
        return answer

    def call_each(self, method: str, requests: Sequence[Any]) -> list[Any]:
        def one(request: Any) -> Any:
            try:
                return self.call(method, request)
            except SyncpointError as error:
                return error

        return [one(request) for request in requests]

    def pages(self, method: str, request: Any, field: str) -> Iterator[Any]:
        yield from getattr(self.call(method, request), field)

    def request(self, method: str) -> Any:
        """The only request that was made to a method."""
        found = [request for name, request in self.calls if name == method]
        assert len(found) == 1, f"{len(found)} calls of {method}"
        return found[0]


@pytest.fixture
def server() -> CannedServer:
    return CannedServer()


@pytest.fixture
def run(server: CannedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Run one command line against the canned server, in project `p` unless configured otherwise."""
    monkeypatch.setenv("SYNCPOINT_CONFIG", str(tmp_path / "config.toml"))
    monkeypatch.setenv("PUBSUB_PROJECT_ID", "p")
    for name in ("SYNCPOINT_ADDRESSES", "PUBSUB_EMULATOR_HOST", "GOOGLE_CLOUD_PROJECT", "SYNCPOINT_DATA"):
        monkeypatch.delenv(name, raising=False)

    def connect(settings: Settings) -> Any:
        server.settings = settings
        return server

    def call(*words: str, **kwargs: Any) -> Result:
        return CliRunner().invoke(cli, list(words), obj=Settings(connect=connect), prog_name="syncpoint", **kwargs)

    return call


@pytest.fixture
def run_json(run: Callable[..., Result]) -> Callable[..., Any]:
    """Run one command line with --format json; its parsed output."""

    def call(*words: str, **kwargs: Any) -> Any:
        result = run(*words, "--format", "json", **kwargs)
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    return call
