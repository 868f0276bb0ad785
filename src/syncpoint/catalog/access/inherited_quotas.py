"""The quotas in force: what the file of `--auth` has for a project, its tenant's, and its own within the tenant.

Place: under `gate` and `access`, asked by what counts requests.
Promise: of each kind the smallest bound of a project holds, and beside it that of its tenant, for all projects of the
tenant together. What follows from file and tenants is found once, until either changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from syncpoint.catalog.access.quotas import PROJECTS_MAX, Payer, Quota
from syncpoint.catalog.access.settings import AuthSettings
from syncpoint.catalog.access.tenant_book import RESOURCE, Tenant, TenantBook

INSTALLATION: Final = "installation"


class QuotaBound(NamedTuple):
    """A bound of a kind (0: none), and the level that it comes from."""

    value: float
    source: str


class InheritedQuotas:
    """The quotas of projects under the settings in force."""

    def __init__(self, settings: Callable[[], AuthSettings], tenants: TenantBook) -> None:
        self._settings, self._tenants = settings, tenants
        self._known: dict[str, tuple[Payer, ...]] = {}
        self._seen, self._changes = settings(), tenants.changes  # that `_known` goes by

    def payers_of(self, project: str) -> tuple[Payer, ...]:
        """Those that pay for what projects/P asks for: the project, and its tenant if it has one."""
        settings = self._settings()
        if settings is not self._seen or self._tenants.changes != self._changes:
            self._seen, self._changes = settings, self._tenants.changes
            self._known.clear()
        known = self._known.get(project)
        if known is None:
            if len(self._known) >= PROJECTS_MAX:
                self._known.clear()
            known = self._known[project] = self._found(settings, project)
        return known

    def outstanding_bounds(self, project: str) -> list[tuple[tuple[str, ...], int]]:
        """How many bytes of messages these projects together may have outstanding."""
        payers = self.payers_of(project)
        return [(one.projects, one.quota.outstanding_bytes) for one in payers if one.quota.outstanding_bytes]

    @property
    def any(self) -> bool:
        """Whether anything may have to be counted at each call."""
        settings = self._settings()
        return bool(settings.quotas) or settings.quota != Quota() or self._tenants.any_quota

    def _found(self, settings: AuthSettings, project: str) -> tuple[Payer, ...]:
        tenant, quota = self._tenants.of(project), settings.quota_of(project)
        if tenant is None:
            return (Payer(project, quota, (project,)),)
        own = Payer(project, smallest(quota, tenant.quota_of(project)), (project,))
        return own, Payer(RESOURCE + tenant.name, tenant.quota, tenant.projects, tenant.weight)


def smallest(one: Quota, other: Quota) -> Quota:
    """The smaller bound of each kind; 0 is none."""
    return Quota._make(min(mine, its) if mine and its else mine or its for mine, its in zip(one, other, strict=True))


def sources(installation: Quota, tenant: Tenant | None, project: str) -> dict[str, QuotaBound]:
    """The smallest bound of each kind, and of equal ones the innermost."""
    levels = [(installation, INSTALLATION)]
    if tenant is not None:
        levels += [(tenant.quota, "tenant"), (tenant.quota_of(project), "project")]
    found = {}
    for number, kind in enumerate(Quota._fields):
        bounds = [QuotaBound(quota[number], source) for quota, source in reversed(levels) if quota[number]]
        found[kind] = min(bounds, key=lambda one: one.value, default=QuotaBound(0, INSTALLATION))
    return found
