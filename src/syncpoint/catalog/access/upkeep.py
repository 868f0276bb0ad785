"""What has to be checked again while a listener is open: the file of `--auth`, keys of issuers, open streams.

Place: started by `node` beside the gate.
Promise: a key that an issuer withdraws, a file that changes and a grant that is taken back are heeded within a minute.
While an issuer does not answer, the keys it had stand. Nothing is fetched but what the file of `--auth` names; an
answer is bounded in size and time, and must not lead elsewhere.
"""

from __future__ import annotations

import asyncio
import logging
import urllib.request
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

from syncpoint.base.model.errors import InvalidArgument
from syncpoint.base.runtime.file_marks import Mark, marks_of
from syncpoint.base.runtime.tasks import Tasks
from syncpoint.catalog.access.gate import Gate
from syncpoint.catalog.access.keysets import SET_BYTES_MAX
from syncpoint.catalog.access.settings import load

LOOK_S: Final = 5.0
FETCH_S: Final = 30.0
ANSWER_S: Final = 5.0
FIRST_S: Final = 6.0
SWEEP_S: Final = 10.0
WANTED_S: Final = 2.0  # between two times when tokens ask for keys that a set does not have
NEED_S: Final = 0.5

log = logging.getLogger(__name__)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *arguments: Any, **named: Any) -> None:
        return None


def fetch(url: str) -> bytes:
    """What lies at an address. Raises `OSError` when it cannot be had."""
    opener = urllib.request.build_opener(_NoRedirects)
    with opener.open(urllib.request.Request(url, headers={"accept": "application/json"}), timeout=ANSWER_S) as answer:
        data: bytes = answer.read(SET_BYTES_MAX + 1)
    return data


async def _in_thread(url: str) -> bytes:
    return await asyncio.to_thread(fetch, url)


class AccessUpkeep:
    """Reload the `--auth` file and issuers' keys while a listener is open.

    `path`: the file of `--auth`; `flush`: writes the audit log out.
    """

    def __init__(
        self,
        path: Path,
        gate: Gate,
        fetching: Callable[[str], Awaitable[bytes]] = _in_thread,
        flush: Callable[[], None] | None = None,
    ) -> None:
        self._path, self._gate, self._fetching, self._flush = path, gate, fetching, flush
        self._authenticator = gate.authenticator
        self._seen = self._marks()
        self._tasks = Tasks()
        self._fetched: dict[str, float] = {}

    async def start(self) -> None:
        """Return when every issuer's keys were asked for once; who did not answer is asked again later."""
        try:
            async with asyncio.timeout(FIRST_S):
                await asyncio.gather(*(self._fetch(issuer) for issuer in self._due()))
        except TimeoutError:
            log.warning("not all issuers of tokens have answered; their tokens are believed once they have")
        self._tasks.start(self._run())

    async def stop(self) -> None:
        """Look at nothing any more."""
        await self._tasks.stop()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        looked = swept = loop.time()
        while True:
            await asyncio.sleep(NEED_S)
            now = loop.time()
            if self._flush is not None:
                self._flush()
            if now >= looked + LOOK_S:
                looked = now
                self.reload()
            for issuer in self._due():
                self._tasks.start(self._fetch(issuer))
            if now >= swept + SWEEP_S:
                swept = now
                self._gate.sweep()

    def reload(self) -> None:
        """Take over the file and the key files it names, if any has changed. What is wrong with them is logged, and
        what was read before stays in force."""
        marks = self._marks()
        if marks == self._seen:
            return
        try:
            self._authenticator.take(load(self._path))
            self._gate.take_quotas()
        except InvalidArgument as error:
            log.error("the file of --auth is not taken over: %s", error)
        else:
            log.info("%s was taken over", self._path)
        self._seen = self._marks()

    def _marks(self) -> dict[Path, Mark]:
        return marks_of((self._path, *self._authenticator.settings.files))

    def _due(self) -> list[str]:
        now = asyncio.get_running_loop().time()
        sets = self._authenticator.sets
        return [
            one.issuer
            for one in self._authenticator.settings.issuers.values()
            if one.jwks_url
            and now >= self._fetched.get(one.issuer, -FETCH_S) + (WANTED_S if one.issuer in sets.wanted else FETCH_S)
        ]

    async def _fetch(self, name: str) -> None:
        issuer = self._authenticator.settings.issuers.get(name)
        if issuer is None:
            return
        sets = self._authenticator.sets
        self._fetched[name] = asyncio.get_running_loop().time()
        sets.wanted.discard(name)
        try:
            sets.put(name, await self._fetching(issuer.jwks_url), self._gate.clock.monotonic())
        except (OSError, InvalidArgument, ValueError) as error:
            log.warning("the keys of %s were not read from %s: %s", name, issuer.jwks_url, error)
