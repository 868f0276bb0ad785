"""What a server or a new cluster offers clients beyond messages: who may come in, pushes, models and buckets.

Place: options of `syncpoint serve` and of `syncpoint cluster up`, which are the same.
Promise: what cannot be right is refused before anything starts.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from syncpoint.base.model.errors import InvalidArgument
from syncpoint.programs.cli.errors import Problem

if TYPE_CHECKING:
    from syncpoint.broker.export.buckets import Place

KEY_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_OPTIONS = (
    click.option(
        "--auth",
        type=KEY_FILE,
        help="File with trusted token issuers and certificates, and the server's owners; all other callers are "
        "refused.",
    ),
    click.option(
        "--host-name",
        "host_names",
        multiple=True,
        metavar="NAME",
        help="Allowed HTTP host name besides localhost, such as host.docker.internal, for a local server without "
        "--auth.",
    ),
    click.option(
        "--push-network",
        "push_networks",
        multiple=True,
        metavar="NETWORK",
        help="Allow push endpoints in this private network: 10.1.0.0/16, or loopback (also over http).",
    ),
    click.option(
        "--push-issuer",
        default="",
        metavar="URL",
        help="Issuer of signed pushes: this server's https address.",
    ),
    click.option(
        "--model",
        "models",
        multiple=True,
        metavar="ENDPOINT=URL",
        help="Address of a model endpoint for message transforms: projects/.../endpoints/...=https://...",
    ),
    click.option(
        "--bucket",
        "buckets",
        multiple=True,
        metavar="NAME=URL",
        help="Location of this bucket for Cloud Storage subscriptions: a folder, or s3://BUCKET?endpoint_url=...",
    ),
)


class Offered(NamedTuple):
    """The values of these options, checked."""

    auth: Path | None
    host_names: tuple[str, ...]
    push_networks: tuple[str, ...]
    push_issuer: str
    models: tuple[tuple[str, str], ...]
    buckets: tuple[tuple[str, Place], ...]

    @staticmethod
    def of(
        auth: Path | None,
        host_names: tuple[str, ...],
        push_networks: tuple[str, ...],
        push_issuer: str,
        models: tuple[str, ...],
        buckets: tuple[str, ...],
    ) -> Offered:
        """From what was given. Raises `click.UsageError`, and `Problem` for the file of --auth."""
        for name in host_names:
            if not name or any(one in name for one in "/:@ "):
                raise click.UsageError(f"--host-name: {name!r} is not a host name; omit the scheme and port.")
        if push_networks:
            from syncpoint.broker.push.addresses import networks

            try:
                networks(push_networks)
            except ValueError as error:
                what = "Write addresses like 10.1.0.0/16, or loopback"
                raise click.UsageError(f"--push-network: {error}. {what}.") from None
        if push_issuer and not push_issuer.startswith("https://"):
            raise click.UsageError("--push-issuer must begin with https://.")
        known_models = tuple((name, url) for name, _, url in (one.partition("=") for one in models))
        if known_models:
            from syncpoint.catalog.transforms.inference import check_model

            for name, url in known_models:
                try:
                    check_model(name, url)
                except ValueError as error:
                    raise click.UsageError(f"--model: {error}.") from None
        known_buckets = []
        if buckets:
            from syncpoint.broker.export.buckets import options_of, place_of

            for one in buckets:
                name, _, url = one.partition("=")
                try:
                    known_buckets.append((name, place := place_of(url)))
                    options_of(place)
                except ValueError as error:
                    raise click.UsageError(f"--bucket: {error}.") from None
        if auth is not None:
            from syncpoint.catalog.access.settings import load

            try:
                load(auth)  # reports its errors now
            except InvalidArgument as error:
                raise Problem(
                    error.message, "`syncpoint docs security` explains every key of the file of --auth."
                ) from error
        return Offered(auth, host_names, push_networks, push_issuer, known_models, tuple(known_buckets))

    def as_settings(self) -> dict[str, Any]:
        """As keys of cluster.yaml, without those that were not given."""
        push = {"networks": list(self.push_networks), "issuer": self.push_issuer}
        found = {
            "auth": None if self.auth is None else str(self.auth.absolute()),
            "host_names": list(self.host_names),
            "push": {key: value for key, value in push.items() if value},
            "models": dict(self.models),
            "buckets": {name: _as_setting(place) for name, place in self.buckets},
        }
        return {key: value for key, value in found.items() if value}


def _as_setting(place: Place) -> Any:
    """An address with its options, whose files are named in full; it is read from another folder than this one."""
    options = json.loads(place.options)
    return {"url": place.url, "options": options} if options else place.url


def offered_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds these options."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command
