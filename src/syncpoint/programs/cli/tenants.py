"""`syncpoint tenants ...`: owners of several projects, and the bounds that those projects inherit.

Place: the operator's side of the command line; calls of syncpoint.admin.v1.Admin. Owners of a tenant may `describe` it
and ask what is in `effective` use.
Promise: what is added to a list, or removed from it, is so in the tenant that stands: who changes it at the same time
loses nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import click

from syncpoint.programs.cli.help_text import Group
from syncpoint.programs.cli.names import names, others
from syncpoint.programs.cli.output import inform, print_answer, print_message, print_messages
from syncpoint.programs.cli.settings import Settings, with_settings
from syncpoint.programs.cli.values import parse_list, parse_pairs

TRIES = 10
_INTEGERS = ("outstanding_bytes", "connections", "streams", "topics", "subscriptions")
_KINDS = f"Kinds: requests_per_s, bytes_per_s, cpu, {', '.join(_INTEGERS)}."


@click.group(cls=Group)
def tenants() -> None:
    """Manage tenants: owners of projects, and bounds that the projects inherit."""


def _listed(name: str, metavar: str, text: str) -> Callable[..., Any]:
    return click.option(name, multiple=True, metavar=f"{metavar},...", help=text)


_NAME = click.argument("name", shell_complete=others("tenants"))
_DISPLAY_NAME = click.option("--display-name", help="A display name.")
_QUOTA = _listed("--quota", "KIND=BOUND", f"Bounds of all its projects together; 0 removes one. {_KINDS}")
_WEIGHT = click.option("--weight", type=click.IntRange(1, 100), help="Its share of turns against other tenants [1].")
_REGIONS = _listed("--allowed-region", "REGION", "Store messages of its projects only in these regions.")


@tenants.command()
@_NAME
@_DISPLAY_NAME
@_listed("--owner", "MEMBER", "user:, serviceAccount: or group: and an address.")
@_listed("--owned-project", "PROJECT", "A project of the tenant.")
@_REGIONS
@_QUOTA
@_WEIGHT
@with_settings
def create(
    settings: Settings,
    name: str,
    display_name: str | None,
    owner: tuple[str, ...],
    owned_project: tuple[str, ...],
    allowed_region: tuple[str, ...],
    quota: tuple[str, ...],
    weight: int | None,
) -> None:
    """Create a tenant.

    \b
    Example:
      syncpoint tenants create acme --owner user:ann@example.com --owned-project shop,billing --allowed-region eu \\
        --quota requests_per_s=5000,topics=1000
    """
    from syncpoint.wire.protobuf.messages import admin

    tenant = admin.Tenant(
        name=name,
        display_name=display_name or "",
        owners=parse_list(owner),
        projects=_projects(owned_project),
        allowed_regions=parse_list(allowed_region),
        weight=weight or 0,
    )
    _set(tenant.quota, quota)
    made = settings.call("Admin.CreateTenant", admin.CreateTenantRequest(tenant=tenant))
    inform(f"Created tenant [{made.name}].")
    print_answer(settings.format, made)


@tenants.command()
@_NAME
@with_settings
def describe(settings: Settings, name: str) -> None:
    """Describe a tenant.

    \b
    Example:
      syncpoint tenants describe shop
    """
    with settings.client() as client:
        print_message(_read(client, name), settings.format)


@tenants.command("list")
@with_settings
def list_all(settings: Settings) -> None:
    """List the tenants.

    \b
    Example:
      syncpoint tenants list
    """
    from syncpoint.wire.protobuf.messages import admin

    with settings.client() as client:
        found = list(client.pages("Admin.ListTenants", admin.ListTenantsRequest(), "tenants"))
    columns = [
        ("NAME", "name"),
        ("DISPLAY_NAME", "displayName"),
        ("OWNERS", "owners"),
        ("PROJECTS", "projects"),
        ("REGIONS", "allowedRegions"),
    ]
    print_messages(found, settings.format, columns)


@tenants.command()
@_NAME
@_DISPLAY_NAME
@_listed("--add-owner", "MEMBER", "Add owners.")
@_listed("--remove-owner", "MEMBER", "Remove owners.")
@_listed("--add-project", "PROJECT", "Add projects.")
@_listed("--remove-project", "PROJECT", "Remove projects.")
@_REGIONS
@click.option("--clear-allowed-regions", "clear_regions", is_flag=True, help="Allow every region.")
@_QUOTA
@_WEIGHT
@with_settings
def update(
    settings: Settings,
    name: str,
    display_name: str | None,
    add_owner: tuple[str, ...],
    remove_owner: tuple[str, ...],
    add_project: tuple[str, ...],
    remove_project: tuple[str, ...],
    allowed_region: tuple[str, ...],
    clear_regions: bool,
    quota: tuple[str, ...],
    weight: int | None,
) -> None:
    """Change a tenant.

    Of a quota, the kinds that are named change. Regions are replaced. A topic whose own storage policy allows other
    regions is named, and nothing is changed.

    \b
    Example:
      syncpoint tenants update shop --add-project web --allowed-region eu
    """
    regions = parse_list(allowed_region)

    def change(tenant: Any) -> list[str]:
        paths = []
        if display_name is not None:
            tenant.display_name = display_name
            paths.append("display_name")
        if add_owner or remove_owner:
            tenant.owners[:] = _changed(tenant.owners, parse_list(add_owner), parse_list(remove_owner))
            paths.append("owners")
        if add_project or remove_project:
            tenant.projects[:] = _changed(tenant.projects, _projects(add_project), _projects(remove_project))
            paths.append("projects")
        if regions or clear_regions:
            tenant.allowed_regions[:] = regions
            paths.append("allowed_regions")
        if weight is not None:
            tenant.weight = weight
            paths.append("weight")
        return [*paths, *(f"quota.{kind}" for kind in _set(tenant.quota, quota))]

    if regions and clear_regions:
        raise click.UsageError("--allowed-region and --clear-allowed-regions exclude each other.")
    _change(settings, name, change)


@tenants.command()
@_NAME
@with_settings
def delete(settings: Settings, name: str) -> None:
    """Delete a tenant that has no projects any more.

    \b
    Example:
      syncpoint tenants delete shop
    """
    from syncpoint.wire.protobuf.messages import admin

    settings.call("Admin.DeleteTenant", admin.DeleteTenantRequest(name=name))
    inform(f"Deleted tenant [{name}].")


@tenants.command("set-quota")
@_NAME
@_listed("--quota", "KIND=BOUND", f"Bounds of the project, within those of the tenant; 0 removes one. {_KINDS}")
@with_settings
def set_quota(settings: Settings, name: str, quota: tuple[str, ...]) -> None:
    """Bound one project of a tenant; for the tenant's owners.

    \b
    Example:
      syncpoint tenants set-quota acme --project shop --quota requests_per_s=1000
    """
    from syncpoint.wire.protobuf.messages import admin

    project = f"projects/{settings.project}"

    def request(tenant: Any) -> tuple[str, Any]:
        asked = admin.UpdateProjectQuotaRequest(tenant=name, project=project, etag=tenant.etag)
        if project in tenant.project_quotas:
            asked.quota.CopyFrom(tenant.project_quotas[project])
        _set(asked.quota, quota)
        return "Admin.UpdateProjectQuota", asked

    _again(settings, name, request)


@tenants.command()
@_NAME
@with_settings
def metrics(settings: Settings, name: str) -> None:
    """Print the metrics of a tenant's projects, in the format of Prometheus.

    \b
    Example:
      syncpoint tenants metrics shop
    """
    from syncpoint.wire.protobuf.messages import admin

    found = settings.call("Admin.GetTenantMetrics", admin.GetTenantMetricsRequest(name=name))
    if not print_answer(settings.format, found):
        click.echo(found.text, nl=False)


@tenants.command()
@click.argument("topic", required=False, shell_complete=names("topics"))
@click.option("--tenant", default="", help="The tenant of the project, if you own that and not the server.")
@with_settings
def effective(settings: Settings, topic: str | None, tenant: str) -> None:
    """Show the bounds in force for the project, or for a topic, and where each comes from.

    \b
    Examples:
      syncpoint tenants effective --tenant shop
      syncpoint tenants effective orders
    """
    from syncpoint.wire.protobuf.messages import admin

    resource = f"projects/{settings.project}" if topic is None else settings.name("topics", topic)
    request = admin.GetEffectivePolicyRequest(resource=resource, tenant=tenant)
    found = settings.call("Admin.GetEffectivePolicy", request)
    rows = [[one.name, one.value or "unlimited", one.source] for one in found.settings]
    print_answer(settings.format, found, ["SETTING", "VALUE", "FROM"], rows)


def _read(client: Any, name: str) -> Any:
    from syncpoint.wire.protobuf.messages import admin

    return client.call("Admin.GetTenant", admin.GetTenantRequest(name=name))


def _change(settings: Settings, name: str, change: Callable[[Any], list[str]]) -> None:
    """Change the tenant by a function that returns what it changed."""
    from syncpoint.wire.protobuf.messages import admin

    def request(tenant: Any) -> tuple[str, Any]:
        asked = admin.UpdateTenantRequest(tenant=tenant)
        asked.update_mask.paths[:] = change(asked.tenant)
        if not asked.update_mask.paths:
            raise click.UsageError("Name what to change; see --help.")
        return "Admin.UpdateTenant", asked

    _again(settings, name, request)


def _again(settings: Settings, name: str, request: Callable[[Any], tuple[str, Any]]) -> None:
    """Make a call that follows from the tenant that stands; again, when somebody else was first."""
    from syncpoint.base.model.errors import Aborted, Code, SyncpointError

    with settings.client() as client:
        for _ in range(TRIES):
            method, asked = request(_read(client, name))
            try:
                stored = client.call(method, asked)
            except SyncpointError as error:
                if error.code is not Code.ABORTED:
                    raise
                continue
            inform(f"Updated tenant [{name}].")
            print_answer(settings.format, stored)
            return
    raise Aborted("The tenant kept changing while it was edited. Try again.")


def _set(quota: Any, given: tuple[str, ...]) -> list[str]:
    """Give a quota these bounds; returns the kinds."""
    pairs = parse_pairs(given, "--quota")
    for kind, bound in pairs.items():
        if kind not in quota.DESCRIPTOR.fields_by_name:
            raise click.UsageError(f"--quota: {kind!r} is no kind of quota. {_KINDS}")
        try:
            setattr(quota, kind, int(bound) if kind in _INTEGERS else float(bound))
        except ValueError:
            raise click.UsageError(f"--quota: {kind}={bound} is not a number.") from None
    return list(pairs)


def _changed(known: Iterable[str], added: Iterable[str], removed: Iterable[str]) -> list[str]:
    without = set(removed)
    return [one for one in dict.fromkeys([*known, *added]) if one not in without]


def _projects(given: tuple[str, ...]) -> list[str]:
    return [one if one.startswith("projects/") else f"projects/{one}" for one in parse_list(given)]
