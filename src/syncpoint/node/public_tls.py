"""TLS at a door for clients: files as a context that follows them.

Place: made by `process` and by the role of proxies.
Promise: a certificate that is replaced on disk is shown to every connection from a few seconds later on; one that can
not be used, or is half written, is not taken over, and the one before stays. Whom clients' certificates must be signed
by is read once.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from pathlib import Path
from typing import Final

from syncpoint.model.errors import InvalidArgument
from syncpoint.runtime.tasks import Tasks

LOOK_S: Final = 5.0

log = logging.getLogger(__name__)


class PublicTls:
    """`client_ca`: who signs clients' certificates. `optional`: a client without one is let in, to show a token."""

    def __init__(self, certificate: Path, key: Path, client_ca: Path | None, *, optional: bool) -> None:
        """Raises `InvalidArgument`."""
        self._certificate, self._key = certificate, key
        self._tasks = Tasks()
        self._seen = self._marks()
        self.context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            self.context.load_cert_chain(certificate, key)
        except (ssl.SSLError, OSError) as error:
            raise InvalidArgument("tls_cert", f"{certificate} and {key} can not be used: {_reason(error)}") from None
        if client_ca is not None:
            try:
                self.context.load_verify_locations(client_ca)
            except (ssl.SSLError, OSError) as error:
                raise InvalidArgument("tls_client_ca", f"{client_ca} can not be used: {_reason(error)}") from None
            self.context.verify_mode = ssl.CERT_OPTIONAL if optional else ssl.CERT_REQUIRED

    def start(self) -> None:
        """Follow the files."""
        self._tasks.start(self._follow())

    async def stop(self) -> None:
        """Do not any more."""
        await self._tasks.stop()

    def look(self) -> bool:
        """Take over what has changed; whether there was something."""
        marks = self._marks()
        if marks == self._seen:
            return False
        try:
            # Into a context of its own first: what does not fit together must not spoil the one in use.
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self._certificate, self._key)
            self.context.load_cert_chain(self._certificate, self._key)
        except (ssl.SSLError, OSError) as error:
            log.error("%s and %s are not taken over: %s", self._certificate, self._key, _reason(error))
            return False
        self._seen = marks
        log.info("%s was taken over", self._certificate)
        return True

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            self.look()

    def _marks(self) -> list[tuple[int, int, int]]:
        marks = []
        for path in (self._certificate, self._key):
            try:
                found = path.stat()
            except OSError:
                continue
            marks.append((found.st_mtime_ns, found.st_size, found.st_ino))
        return marks


def _reason(error: ssl.SSLError | OSError) -> str:
    return str(getattr(error, "reason", None) or getattr(error, "strerror", None) or error)
