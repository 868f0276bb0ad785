"""Tokens that a command prints: a vault's client, `syncpoint iam token`, a cloud's command line.

Place: beside the calls of the data source for Spark and of federation, which ask before each call.
Promise: a command ends within `RUN_S` or is killed; what it prints is kept in memory until shortly before its expiry,
per process, and stands in no text, not even in that of a failure. While a new one cannot be had, the old one is used as
long as it is good.

A command prints the token alone, then it is asked again after `KEPT_S`; or JSON with `token` (or `access_token`) and
its end: `expires_in`, seconds, or `expires` (or `expiry`), a time.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

RUN_S = 20.0
KEPT_S = 300.0
SPARE_S = 60.0  # of its time left, when a token is made anew; a tenth of it, if that is less
AGAIN_S = 5.0  # after a failure, while the old one is good


class TokenCommandError(Exception):
    """There is no token. The text names the command, and never what it printed."""


@dataclass(frozen=True, slots=True)
class _KeptToken:
    token: str
    renew_at: float  # seconds since 1970
    ends_at: float


class TokenCommand:
    """One command. `run` gives its output and its exit code; `clock` is the time since 1970."""

    def __init__(
        self,
        command: str,
        run: Callable[[str], tuple[str, int]] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._command, self._run, self._clock = command, run or _output, clock
        self._kept: _KeptToken | None = None
        self._lock = threading.Lock()

    def token(self) -> str:
        """A token that is good now. Raises `TokenCommandError`."""
        with self._lock:
            now, kept = self._clock(), self._kept
            if kept is not None and now < kept.renew_at:
                return kept.token
            try:
                self._kept = self._made(now)
            except TokenCommandError:
                if kept is None or now >= kept.ends_at:
                    raise
                self._kept = _KeptToken(kept.token, min(now + AGAIN_S, kept.ends_at), kept.ends_at)
            return self._kept.token

    def forget(self) -> None:
        """A server did not take what was kept: it is not used again."""
        with self._lock:
            self._kept = None

    def _made(self, now: float) -> _KeptToken:
        text, code = self._run(self._command)
        if code:
            raise TokenCommandError(f"the command {self._command!r} for a token ended with {code}")
        token, ends_at = _read(text.strip(), self._command, now)
        if not token or not token.isprintable() or not token.isascii() or " " in token:
            raise TokenCommandError(f"the command {self._command!r} printed no token: one line of printable ASCII")
        if ends_at is None:
            return _KeptToken(token, now + KEPT_S, now + KEPT_S)
        if ends_at <= now:
            raise TokenCommandError(f"the command {self._command!r} printed a token that has expired")
        return _KeptToken(token, ends_at - min(SPARE_S, (ends_at - now) / 10), ends_at)


def _read(text: str, command: str, now: float) -> tuple[str, float | None]:
    """(token, its end in seconds since 1970, if it has one)."""
    if not text.startswith("{"):
        return text, None
    try:
        found: dict[str, Any] = json.loads(text)
        token = str(found.get("token") or found.get("access_token") or "")
        if "expires_in" in found:
            return token, now + float(found["expires_in"])
        end = found.get("expires") or found.get("expiry")
        if end is None:
            return token, None
        if isinstance(end, int | float):
            return token, float(end)
        moment = datetime.fromisoformat(end)
        return token, (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError):
        raise TokenCommandError(f"what the command {command!r} printed is no token with its expiry") from None


def _output(command: str) -> tuple[str, int]:
    try:
        ended = subprocess.run(
            shlex.split(command), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            timeout=RUN_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise TokenCommandError(f"the command {command!r} for a token did not end in {RUN_S:.0f} s") from None
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
        raise TokenCommandError(f"the command {command!r} for a token cannot be run: {why}") from None
    return ended.stdout.decode("utf-8", "replace"), ended.returncode


_commands: dict[tuple[int, str], TokenCommand] = {}
_lock = threading.Lock()


def token_command(command: str) -> TokenCommand:
    """The one of this process for a command line."""
    with _lock:
        return _commands.setdefault((os.getpid(), command), TokenCommand(command))
