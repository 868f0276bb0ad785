"""Access control of one listener, put together from the file of `--auth`.

Place: made by `node` for a server, a worker or a proxy, when there is such a file.
"""

from __future__ import annotations

from pathlib import Path

from syncpoint.access.audit import AuditLog
from syncpoint.access.gate import Gate
from syncpoint.access.policy import Policies
from syncpoint.access.services import ServiceIdentity
from syncpoint.access.settings import load
from syncpoint.access.tokens import Authenticator
from syncpoint.access.upkeep import AccessUpkeep
from syncpoint.metadata.catalog import Catalog
from syncpoint.runtime.clock import Clock


class Served:
    """What holds in a process without a listener, from its start on. Raises `InvalidArgument` and `OSError`."""

    def __init__(self, path: Path, catalog: Catalog, clock: Clock) -> None:
        self._settings = load(path)
        self.service = ServiceIdentity(self._settings.service_identity, Policies(catalog), clock)

    def outstanding_of(self, project: str) -> int:
        """See `Access`."""
        return self._settings.quota_of(project).outstanding_bytes


class Access:
    """The gate of a listener, and what keeps it up to date. Raises `InvalidArgument` and `OSError` for a file that
    cannot be used."""

    def __init__(self, path: Path, catalog: Catalog, clock: Clock, name: str = "") -> None:
        """`name`: of the process, where several write audit logs into one folder."""
        settings = load(path)
        authenticator = Authenticator(settings, catalog, clock)
        self._audit: AuditLog | None = None
        if (file := settings.audit_file) is not None:
            file = file.with_name(f"{file.stem}.{name}{file.suffix}") if name else file
            self._audit = AuditLog(file, clock, data=settings.audit_data)
        self.gate = Gate(authenticator, Policies(catalog), catalog, clock, self._audit)
        self.service = ServiceIdentity(settings.service_identity, self.gate.policies, clock)
        self._upkeep = AccessUpkeep(path, self.gate, flush=None if self._audit is None else self._audit.flush)

    def outstanding_of(self, project: str) -> int:
        """How many bytes of messages may be outstanding of a project; 0: as many as it likes."""
        return self.gate.authenticator.settings.quota_of(project).outstanding_bytes

    async def start(self) -> None:
        """Before the listener opens."""
        await self._upkeep.start()

    async def stop(self) -> None:
        """After it has closed."""
        await self._upkeep.stop()
        if self._audit is not None:
            self._audit.close()
