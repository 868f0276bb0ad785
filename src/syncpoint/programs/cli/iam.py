"""`syncpoint iam ...`: who may do what, and the accounts of programs.

Place: over google.iam.v1.IAMPolicy; `init` and `roles` need no server. Accounts are in `iam_accounts`.
Promise: a grant is added to, or taken from, the policy that stands: who changes it at the same time loses nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from syncpoint.programs.cli import names as offered
from syncpoint.programs.cli.errors import Problem
from syncpoint.programs.cli.help_text import Group
from syncpoint.programs.cli.iam_accounts import accounts, new_key
from syncpoint.programs.cli.output import inform, print_answer
from syncpoint.programs.cli.settings import Settings, with_settings

TRIES = 10
_KINDS = ("topics", "subscriptions", "snapshots", "schemas")


@click.group(cls=Group)
def iam() -> None:
    """Manage access policies and service accounts."""


iam.add_command(accounts)


# -- a server's file ---------------------------------------------------------------------------------------------------


@iam.command()
@click.argument("auth_file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--owner", required=True, metavar="EMAIL", help="Address of the first account: name@domain.")
@click.option("--key-file", required=True, type=click.Path(dir_okay=False, path_type=Path), help="File for its key.")
@click.option("--audience", "audiences", multiple=True, metavar="URL", help="Audience of tokens for this server.")
@with_settings
def init(settings: Settings, auth_file: Path, owner: str, key_file: Path, audiences: tuple[str, ...]) -> None:
    """Write a file for `serve --auth`, with an account that owns the server, and the key file of that account.

    \b
    Example:
      syncpoint iam init auth.yaml --owner admin@example.com --key-file admin.json
      syncpoint serve --tls-cert server.pem --tls-key server.key --auth auth.yaml
      syncpoint iam policy get project --project demo --tls-ca ca.pem --credentials admin.json
    """
    import yaml

    from syncpoint.catalog.access.accounts import parse_email
    from syncpoint.catalog.access.settings import parse

    if auth_file.exists():
        raise Problem(f"{auth_file} already exists", "Edit it by hand; servers reload it automatically.")
    public = auth_file.with_suffix(".owner.pub")
    content = {
        "audiences": list(audiences),
        "owners": [f"serviceAccount:{parse_email(owner)}"],
        "service_accounts": [{"email": owner, "key_files": [public.name]}],
    }
    parse(content)
    public.write_text(new_key(key_file, owner, settings.project_or_none or ""))
    auth_file.write_text(yaml.safe_dump(content, sort_keys=False))
    inform(f"Wrote {auth_file} and {public}, for the server.")
    inform(f"Wrote {key_file}, which is secret: anyone who has it owns the server.")


@iam.command()
@click.argument("role", required=False, shell_complete=offered.roles)
@with_settings
def roles(settings: Settings, role: str | None) -> None:
    """List all roles, or the permissions of a role.

    \b
    Examples:
      syncpoint iam roles
      syncpoint iam roles roles/pubsub.publisher
    """
    from syncpoint.catalog.access.roles import ROLES

    if role is not None and role not in ROLES:
        raise Problem(f"unknown role {role}", "`syncpoint iam roles` lists them.", exit_code=3)
    if role is not None:
        held = sorted(ROLES[role])
        print_answer(settings.format, held, ["PERMISSION"], [[one] for one in held])
        return
    print_answer(
        settings.format,
        {name: sorted(permissions) for name, permissions in ROLES.items()},
        ["ROLE", "PERMISSIONS"],
        [[name, str(len(held))] for name, held in ROLES.items()],
    )


@iam.command()
@with_settings
def token(settings: Settings) -> None:
    """Print a token for the account of --credentials, for `curl` and clients that accept tokens; valid for an hour.

    \b
    Example:
      syncpoint iam token
    """
    found = settings.credentials()
    if found is None:
        raise Problem("no credentials", "Give --credentials FILE or set SYNCPOINT_CREDENTIALS.", exit_code=2)
    click.echo(found.token())


# -- policies ----------------------------------------------------------------------------------------------------------


@iam.group()
def policy() -> None:
    """Read and change who may do what with a resource.

    RESOURCE is topics/NAME, subscriptions/NAME, snapshots/NAME or schemas/NAME, a full name, `project` for the whole
    project, or `server` for everything.
    """


_RESOURCE = click.argument("resource", metavar="RESOURCE", shell_complete=offered.resources)
_MEMBER = click.option(
    "--member", required=True, help="user:, serviceAccount:, group: or domain: and an address; allUsers; ..."
)
_ROLE = click.option(
    "--role",
    required=True,
    shell_complete=offered.roles,
    help="A role such as roles/pubsub.publisher; `syncpoint iam roles` lists them.",
)


def _named(settings: Settings, resource: str) -> str:
    if resource in ("server",) or resource.startswith("projects/"):
        return resource
    if resource == "project":
        return f"projects/{settings.project}"
    kind, slash, name = resource.partition("/")
    if kind not in _KINDS or not slash:
        raise click.UsageError(f"{resource!r} is not a resource; write topics/NAME, project, server or a full name.")
    return settings.name(kind, name)


@policy.command("get")
@_RESOURCE
@with_settings
def get_policy(settings: Settings, resource: str) -> None:
    """Show the policy of a resource.

    \b
    Example:
      syncpoint iam policy get topics/orders
    """
    with settings.client() as client:
        found = _read(client, _named(settings, resource))
    rows = [
        [binding.role, member, binding.condition.expression] for binding in found.bindings for member in binding.members
    ]
    print_answer(settings.format, found, ["ROLE", "MEMBER", "CONDITION"], rows)


@policy.command("set")
@_RESOURCE
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@with_settings
def set_policy(settings: Settings, resource: str, file: Path) -> None:
    """Replace the policy of a resource by a file (JSON or YAML, as printed by `policy get --format json`).

    If the file has the etag that was read, a policy that has changed since is not replaced.

    \b
    Example:
      syncpoint iam policy set topics/orders policy.json
    """
    import yaml
    from google.protobuf import json_format

    from syncpoint.base.model.yaml_text import load_yaml
    from syncpoint.wire.protobuf.messages import iam as messages

    wanted = messages.Policy()
    try:
        json_format.ParseDict(load_yaml(file.read_text()) or {}, wanted)
    except (yaml.YAMLError, json_format.ParseError) as error:
        raise Problem(
            f"{file} is not a policy: {error}", "`syncpoint iam policy get --format json` shows an example."
        ) from None
    name = _named(settings, resource)
    stored = settings.call("IAMPolicy.SetIamPolicy", messages.SetIamPolicyRequest(resource=name, policy=wanted))
    inform(f"Replaced the policy of [{name}].")
    print_answer(settings.format, stored)


@policy.command()
@_RESOURCE
@_MEMBER
@_ROLE
@click.option("--condition", default="", metavar="EXPRESSION", help="A condition in the Common Expression Language.")
@with_settings
def add(settings: Settings, resource: str, member: str, role: str, condition: str) -> None:
    """Grant a role to a member.

    \b
    Examples:
      syncpoint iam policy add topics/orders --member user:ann@example.com --role roles/pubsub.publisher
      syncpoint iam policy add project --member domain:example.com --role roles/pubsub.viewer
    """

    def change(found: Any) -> bool:
        for binding in found.bindings:
            if (binding.role, binding.condition.expression) == (role, condition):
                if member in binding.members:
                    return False
                binding.members.append(member)
                return True
        made = found.bindings.add(role=role, members=[member])
        if condition:
            made.condition.expression = condition
            made.condition.title = condition[:100]
            found.version = 3
        return True

    _change(settings, resource, change, f"Granted {role} to {member}", f"{member} already has {role}")


@policy.command()
@_RESOURCE
@_MEMBER
@_ROLE
@with_settings
def remove(settings: Settings, resource: str, member: str, role: str) -> None:
    """Revoke a role from a member, with and without conditions.

    \b
    Example:
      syncpoint iam policy remove topics/orders --member user:ann@example.com --role roles/pubsub.publisher
    """

    def change(found: Any) -> bool:
        hit = [one for one in found.bindings if one.role == role and member in one.members]
        for binding in hit:
            binding.members.remove(member)
        kept = [one for one in found.bindings if one.members]
        if len(kept) < len(found.bindings):
            copies = [type(one).FromString(one.SerializeToString()) for one in kept]
            del found.bindings[:]
            found.bindings.extend(copies)
        return bool(hit)

    _change(settings, resource, change, f"Revoked {role} from {member}", f"{member} does not have {role} there")


@iam.command()
@_RESOURCE
@click.argument("permissions", nargs=-1, required=True, metavar="PERMISSION...", shell_complete=offered.permissions)
@with_settings
def test(settings: Settings, resource: str, permissions: tuple[str, ...]) -> None:
    """Check your permissions on a resource, such as pubsub.topics.publish.

    \b
    Example:
      syncpoint iam test topics/orders pubsub.topics.publish
    """
    from syncpoint.wire.protobuf.messages import iam as messages

    request = messages.TestIamPermissionsRequest(resource=_named(settings, resource), permissions=permissions)
    held = set(settings.call("IAMPolicy.TestIamPermissions", request).permissions)
    print_answer(
        settings.format,
        sorted(held),
        ["PERMISSION", "HELD"],
        [[one, "yes" if one in held else "no"] for one in permissions],
    )


def _read(client: Any, name: str) -> Any:
    from syncpoint.wire.protobuf.messages import iam as messages

    request = messages.GetIamPolicyRequest(resource=name)
    request.options.requested_policy_version = 3
    return client.call("IAMPolicy.GetIamPolicy", request)


def _change(settings: Settings, resource: str, change: Callable[[Any], bool], done: str, nothing: str) -> None:
    """Change the policy that stands; again, when somebody else was first."""
    from syncpoint.base.model.errors import Aborted, Code, SyncpointError
    from syncpoint.wire.protobuf.messages import iam as messages

    name = _named(settings, resource)
    with settings.client() as client:
        for _ in range(TRIES):
            found = _read(client, name)
            if not change(found):
                inform(f"{nothing}: [{name}].")
                return
            try:
                request = messages.SetIamPolicyRequest(resource=name, policy=found)
                stored = client.call("IAMPolicy.SetIamPolicy", request)
            except SyncpointError as error:
                if error.code is not Code.ABORTED:
                    raise
                continue
            inform(f"{done} on [{name}].")
            print_answer(settings.format, stored)
            return
    raise Aborted("The policy kept changing while it was edited. Try again.")
