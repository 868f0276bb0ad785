"""`syncpoint iam accounts ...`: the accounts of programs, and their keys.

Place: under `iam`, over syncpoint.iam.v1.ServiceAccounts.
Promise: the private half of a key is written into one file, readable by its owner alone, and sent nowhere.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import click

from syncpoint.programs.cli.errors import Problem
from syncpoint.programs.cli.help_text import Group
from syncpoint.programs.cli.names import others
from syncpoint.programs.cli.output import inform, print_answer, print_messages
from syncpoint.programs.cli.settings import Settings, with_settings


@click.group(cls=Group)
def accounts() -> None:
    """Accounts of programs, which show who they are with keys."""


_EMAIL = click.argument("email", metavar="EMAIL", shell_complete=others("accounts"))


@accounts.command("create")
@_EMAIL
@click.option("--display-name", default="", help="A display name.")
@with_settings
def create_account(settings: Settings, email: str, display_name: str) -> None:
    """Create an account of the project, without keys or grants.

    EMAIL is NAME@PROJECT.iam.syncpoint.internal, or has the suffix set in the server's --auth file (`account_suffix`).
    An owner of the server may choose any other address that its configuration does not use.

    \b
    Example, with --project demo:
      syncpoint iam accounts create billing@demo.iam.syncpoint.internal
      syncpoint iam accounts keys create billing@demo.iam.syncpoint.internal --file billing.json
      syncpoint iam policy add topics/orders --role roles/pubsub.publisher \\
        --member serviceAccount:billing@demo.iam.syncpoint.internal
    """
    from syncpoint.wire.protobuf.messages import accounts as messages

    project = f"projects/{settings.project}"
    request = messages.CreateServiceAccountRequest(project=project, email=email, display_name=display_name)
    made = settings.call("ServiceAccounts.CreateServiceAccount", request)
    inform(f"Created account [{made.email}] of [{made.project}].")
    print_answer(settings.format, made)


@accounts.command("list")
@click.option("--foreign", is_flag=True, help="List accounts of all projects whose address is outside their project.")
@with_settings
def list_accounts(settings: Settings, foreign: bool) -> None:
    """List the accounts of the project.

    With --foreign, list accounts that an operator should review: accounts of any project that another project could
    have created. Reserved accounts have an address that the server's configuration uses; their tokens are refused.

    \b
    Example:
      syncpoint iam accounts list
    """
    from syncpoint.wire.protobuf.messages import accounts as messages

    project = "" if foreign else f"projects/{settings.project}"
    request = messages.ListServiceAccountsRequest(project=project, foreign=foreign)
    found = settings.call("ServiceAccounts.ListServiceAccounts", request).accounts
    columns = [("EMAIL", "email"), ("NAME", "displayName"), ("CREATED", "createTime")]
    if foreign:
        columns[1:1] = [("PROJECT", "project"), ("RESERVED", "reserved")]
    print_messages(found, settings.format, columns)


@accounts.command("delete")
@_EMAIL
@with_settings
def delete_account(settings: Settings, email: str) -> None:
    """Delete an account and its keys; its tokens are refused immediately.

    \b
    Example:
      syncpoint iam accounts delete shop@demo.iam.gserviceaccount.com
    """
    from syncpoint.wire.protobuf.messages import accounts as messages

    settings.call("ServiceAccounts.DeleteServiceAccount", messages.DeleteServiceAccountRequest(email=email))
    inform(f"Deleted account [{email}].")


@accounts.group()
def keys() -> None:
    """Keys of an account."""


@keys.command("create")
@_EMAIL
@click.option(
    "--file",
    "path",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="Path of the key file.",
)
@click.option("--days", type=click.IntRange(min=1), help="Lifetime of the key [until deleted].")
@with_settings
def create_key(settings: Settings, email: str, path: Path, days: int | None) -> None:
    """Create a key locally, and write a key file for Google's libraries (GOOGLE_APPLICATION_CREDENTIALS).

    The server receives only the public key.

    \b
    Example:
      syncpoint iam accounts keys create shop@demo.iam.gserviceaccount.com --file shop.json --days 90
    """
    from syncpoint.wire.protobuf.messages import accounts as messages

    request = messages.AddServiceAccountKeyRequest(
        email=email, public_key=new_key(path, email, settings.project_or_none or "")
    )
    if days is not None:
        request.ttl.FromSeconds(days * 86_400)
    try:
        made = settings.call("ServiceAccounts.AddServiceAccountKey", request)
    except BaseException:
        path.unlink(missing_ok=True)  # nobody knows it
        raise
    inform(f"Wrote {path}: key {made.id} of [{email}]. It is secret and cannot be downloaded again.")


@keys.command("list")
@_EMAIL
@with_settings
def list_keys(settings: Settings, email: str) -> None:
    """List the keys of an account.

    \b
    Example:
      syncpoint iam accounts keys list shop@demo.iam.gserviceaccount.com
    """
    from syncpoint.wire.protobuf.messages import accounts as messages

    request = messages.ListServiceAccountKeysRequest(email=email)
    found = settings.call("ServiceAccounts.ListServiceAccountKeys", request).keys
    print_messages(found, settings.format, [("ID", "id"), ("CREATED", "createTime"), ("EXPIRES", "expireTime")])


@keys.command("delete")
@_EMAIL
@click.argument("key_id", metavar="ID")
@with_settings
def delete_key(settings: Settings, email: str, key_id: str) -> None:
    """Delete a key of an account; tokens signed with it are refused immediately.

    \b
    Example:
      syncpoint iam accounts keys delete shop@demo.iam.gserviceaccount.com KEY_ID
    """
    from syncpoint.wire.protobuf.messages import accounts as messages

    request = messages.DeleteServiceAccountKeyRequest(email=email, id=key_id)
    settings.call("ServiceAccounts.DeleteServiceAccountKey", request)
    inform(f"Deleted key {key_id} of [{email}].")


def new_key(path: Path, email: str, project: str) -> str:
    """Make a key and write its file; returns the public half in PEM form."""
    from cryptography.hazmat.primitives.asymmetric import rsa
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    from syncpoint.catalog.access.keysets import canonical, key_id

    key = rsa.generate_private_key(65537, 2048)  # what the official libraries sign with
    content = {
        "type": "service_account",
        "project_id": project,
        "private_key_id": key_id(key.public_key()),
        "private_key": key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode(),
        "client_email": email,
        "client_id": "",
        "auth_uri": "https://localhost/none",
        "token_uri": "https://localhost/none",  # needed by the libraries, which sign by themselves and do not call it
        "universe_domain": "googleapis.com",
    }
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise Problem(f"{path} already exists", "Key files are not overwritten; name another file.") from None
    with os.fdopen(handle, "w") as file:
        json.dump(content, file, indent=2)
        file.write("\n")
    return canonical(key.public_key())
