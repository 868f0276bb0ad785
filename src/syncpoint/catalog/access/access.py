"""Access control of one process, put together from the file of `--auth`.

Place: made by `node` when there is such a file: `Access` for a server, a worker or a proxy, `AccessFile` for a process
without a listener for clients.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from syncpoint.base.model.errors import InvalidArgument
from syncpoint.base.model.settings_section import file_named
from syncpoint.base.runtime.clock import Clock
from syncpoint.base.runtime.file_marks import marks_of
from syncpoint.base.runtime.periodic import Periodic
from syncpoint.catalog.access.accounts import Accounts
from syncpoint.catalog.access.audit import AuditLog
from syncpoint.catalog.access.audit_reading import AuditReading
from syncpoint.catalog.access.gate import Gate
from syncpoint.catalog.access.inherited_quotas import InheritedQuotas
from syncpoint.catalog.access.policy import Policies
from syncpoint.catalog.access.quotas import CpuQuota
from syncpoint.catalog.access.services import ServiceIdentity
from syncpoint.catalog.access.settings import AuthSettings, load
from syncpoint.catalog.access.tenant_book import TenantBook
from syncpoint.catalog.access.tokens import Authenticator
from syncpoint.catalog.access.upkeep import LOOK_S, AccessUpkeep
from syncpoint.catalog.metadata.catalog import Catalog

log = logging.getLogger(__name__)


class AccessFile:
    """The file as it stands: the service's own identity, and what projects may have outstanding. Raises
    `InvalidArgument`."""

    def __init__(self, path: Path, catalog: Catalog, clock: Clock) -> None:
        self._path, self._settings = path, load(path)
        self._seen = marks_of((path, *self._settings.files))
        inherited = InheritedQuotas(lambda: self._settings, TenantBook(catalog))
        self.outstanding_bounds = inherited.outstanding_bounds
        self.cpu = CpuQuota(inherited.payers_of, clock.monotonic)
        self._following = Periodic(self._follow, lambda: LOOK_S)
        accounts = Accounts(catalog, lambda: self._settings.names)
        policies = Policies(catalog, accounts)
        self.service = ServiceIdentity(lambda: self._settings, policies, accounts, catalog, clock, self.cpu)

    def start(self) -> None:
        """Follow the file."""
        self._following.start()

    async def stop(self) -> None:
        """Do not any more."""
        await self._following.stop()

    def look(self) -> None:
        """Take over what has changed; what is wrong is logged, and what was read before stays in force."""
        marks = marks_of((self._path, *self._settings.files))
        if marks == self._seen:
            return
        self._seen = marks
        try:
            self._settings = load(self._path)
        except InvalidArgument as error:
            log.error("the file of --auth is not taken over: %s", error)

    async def _follow(self) -> None:
        self.look()


def audit_log(settings: AuthSettings, clock: Clock, name: str) -> AuditLog | None:
    """The one that the file of --auth asks for; `name`: of the process that writes it, where several do. Raises
    `InvalidArgument`."""
    file = settings.audit_file
    if file is None:
        return None
    file = file.with_name(f"{file.stem}.{name}{file.suffix}") if name else file
    with file_named("audit.file", file):
        return AuditLog(
            file,
            clock,
            data=settings.audit_data,
            kept_bytes_max=settings.audit_mib << 20,
            kept_days=settings.audit_days,
        )


def _later(seconds: float, function: Callable[[], None]) -> object:
    return asyncio.get_running_loop().call_later(seconds, function)


class Access:
    """The gate of a listener, and what keeps it up to date. Raises `InvalidArgument` for a file that cannot
    be used."""

    def __init__(self, path: Path, catalog: Catalog, clock: Clock, name: str = "") -> None:
        """`name`: of the process, where several write audit logs into one folder."""
        settings = load(path)
        self._audit: AuditLog | None = None
        self.audit: AuditReading | None = None
        try:
            authenticator = Authenticator(settings, catalog, clock)
            self._audit = audit_log(settings, clock, name)
            self.audit = None if self._audit is None else AuditReading(self._audit.path)
        except InvalidArgument as error:
            raise InvalidArgument(str(path), error.message) from None
        self.accounts = authenticator.accounts
        self.gate = Gate(authenticator, Policies(catalog, self.accounts), catalog, clock, self._audit, _later)
        self.outstanding_bounds = self.gate.inherited.outstanding_bounds
        self.service = ServiceIdentity(
            lambda: authenticator.settings, self.gate.policies, self.accounts, catalog, clock, self.gate.cpu
        )
        self._upkeep = AccessUpkeep(path, self.gate, flush=None if self._audit is None else self._audit.flush)

    def may_use_bucket(self, project: str, bucket: str) -> bool:
        """Whether messages of a project may be exported to a bucket, by the file in force."""
        return self.gate.authenticator.settings.may_use_bucket(project, bucket)

    def may_use_model(self, project: str, endpoint: str) -> bool:
        """Whether messages of a project may be given to a model, by the file in force."""
        return self.gate.authenticator.settings.may_use_model(project, endpoint)

    async def start(self) -> None:
        """Before the listener opens."""
        await self._upkeep.start()

    async def stop(self) -> None:
        """After it has closed."""
        await self._upkeep.stop()
        if self._audit is not None:
            self._audit.close()
