"""Certificates that are replaced on disk while a process runs.

Place: under `public_tls`, of listeners for clients, and `cluster/tls`, of connections between processes.
Promise: a certificate that is replaced is shown to every connection from a few seconds later on; one that cannot be
used, or is half written, is not taken over, and the one before stays. An authority that is added to the file of those
whom processes trust is trusted as soon; one that is taken out, by this process until it ends: a context forgets none.
"""

from __future__ import annotations

import logging
import ssl
import weakref
from pathlib import Path
from typing import Final

from syncpoint.runtime.file_marks import marks_of
from syncpoint.runtime.periodic import Periodic

LOOK_S: Final = 5.0

log = logging.getLogger(__name__)


class CertificateFiles:
    """A certificate with its key, and the contexts that show it. `load` puts it into one more of them. `ca`: who is
    trusted to sign those of others, where that is the same for all the contexts."""

    def __init__(self, certificate: Path, key: Path, ca: Path | None = None) -> None:
        self._certificate, self._key, self._ca = certificate, key, ca
        self._files = [one for one in (certificate, key, ca) if one is not None]
        self._contexts: weakref.WeakSet[ssl.SSLContext] = weakref.WeakSet()
        self._following = Periodic(self._follow, lambda: LOOK_S)
        self._seen = marks_of(self._files)

    def load(self, context: ssl.SSLContext) -> None:
        """Let a context show the certificate, now and later. Raises `SSLError` and `OSError`."""
        self._read(context)
        self._contexts.add(context)

    def start(self) -> None:
        """Follow the files."""
        self._following.start()

    async def stop(self) -> None:
        """Do not any more."""
        await self._following.stop()

    def reload(self) -> bool:
        """Take over what has changed; whether there was something."""
        marks = marks_of(self._files)
        if marks == self._seen:
            return False
        try:
            # Into a context of its own first: what does not fit together must not spoil those in use.
            self._read(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
            for context in list(self._contexts):
                self._read(context)
        except (ssl.SSLError, OSError) as error:
            log.error("%s are not taken over: %s", self._names(), reason_of(error))
            return False
        self._seen = marks
        log.info("%s were taken over", self._names())
        return True

    async def _follow(self) -> None:
        self.reload()

    def _read(self, context: ssl.SSLContext) -> None:
        context.load_cert_chain(self._certificate, self._key)
        if self._ca is not None:
            context.load_verify_locations(self._ca)

    def _names(self) -> str:
        return ", ".join(map(str, self._files))


def reason_of(error: ssl.SSLError | OSError) -> str:
    """The reason in words."""
    return str(getattr(error, "reason", None) or getattr(error, "strerror", None) or error)
