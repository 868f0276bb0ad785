"""The options every command has, where their defaults come from, and the connection they lead to.

Place: between the words on the command line and a command's code.
Promise: an option beats the environment, the environment beats the configuration file, and that beats the built-in
value. A name may be given short (`orders`) or in full (`projects/p/topics/orders`).
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import click

from syncpoint.base.model.hosts import loopback
from syncpoint.programs.cli.errors import Problem
from syncpoint.programs.cli.help_text import CommonOption
from syncpoint.programs.cli.values import SecondsType

if TYPE_CHECKING:
    from syncpoint.front.client.client import Client
    from syncpoint.front.client.credentials import Credentials

P = ParamSpec("P")
R = TypeVar("R")

ENDPOINT_DEFAULT = "127.0.0.1:8085"
ADDRESS_VARIABLES = ("SYNCPOINT_ADDRESSES", "PUBSUB_EMULATOR_HOST")


def config_path() -> Path:
    """Where the configuration file is: $SYNCPOINT_CONFIG, else the user's configuration folder."""
    chosen = os.environ.get("SYNCPOINT_CONFIG")
    if chosen:
        return Path(chosen)
    home = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(home) / "syncpoint" / "config.toml"


def read_config() -> dict[str, str]:
    """The contents of the configuration file; empty when there is none."""
    path = config_path()
    if not path.exists():
        return {}
    import tomllib  # not with every command

    try:
        with path.open("rb") as file:
            return {key: str(value) for key, value in tomllib.load(file).items()}
    except (tomllib.TOMLDecodeError, OSError) as error:
        raise Problem(f"cannot read {path}: {error}", "Correct the file, or remove it.") from error


@dataclass
class Settings:
    """What is common to one run of the command line. None: not given as an option."""

    project_option: str | None = None
    endpoint_option: str | None = None
    format_option: str | None = None
    tls_ca: str | None = None
    tls_cert: str | None = None  # what this side shows to a server that wants to see a certificate
    tls_key: str | None = None
    credentials_option: str | None = None
    timeout_option: float | None = None
    wide: bool = False
    command: tuple[str, ...] = ()
    called: bool = field(default=False, init=False)  # a connection to the endpoint was asked for
    connect: Callable[[Settings], Client] | None = field(default=None, repr=False)

    @functools.cached_property
    def config(self) -> dict[str, str]:
        return read_config()

    @property
    def format(self) -> str:
        return self.format_option or "table"

    @property
    def endpoint(self) -> str:
        """Where the server is: HOST:PORT, or several addresses with commas between them."""
        return self._endpoint[0]

    @property
    def addresses(self) -> list[str]:
        """Its addresses, one by one."""
        return list(dict.fromkeys(one.strip() for one in self.endpoint.split(",")))

    @property
    def endpoint_source(self) -> str:
        """The origin of the endpoint in use; empty for the built-in one."""
        return self._endpoint[1]

    @property
    def _endpoint(self) -> tuple[str, str]:
        if self.endpoint_option:
            return self.endpoint_option, "--endpoint"
        for name in ADDRESS_VARIABLES:
            if os.environ.get(name):
                return os.environ[name], name
        kept = self.config.get("endpoint")
        return (kept, "syncpoint config") if kept else (ENDPOINT_DEFAULT, "")

    @property
    def project_or_none(self) -> str | None:
        return (
            self.project_option
            or os.environ.get("PUBSUB_PROJECT_ID")
            or os.environ.get("GOOGLE_CLOUD_PROJECT")
            or self.config.get("project")
        )

    @property
    def project(self) -> str:
        """The project's short id. Raises Problem when none is known."""
        project = self.project_or_none
        if not project:
            raise Problem(
                "no project is set",
                "Give --project NAME, set PUBSUB_PROJECT_ID, or set a default: syncpoint config set project NAME. "
                "Any name works; projects need not be created.",
                exit_code=2,
            )
        return project.removeprefix("projects/")

    def name(self, collection: str, given: str) -> str:
        """The full name of a topic, subscription or snapshot given short or in full."""
        return given if given.startswith("projects/") else f"projects/{self.project}/{collection}/{given}"

    def call(self, method: str, request: Any) -> Any:
        """What a method answers, over a connection of its own."""
        with self.client() as client:
            return client.call(method, request)

    def client(self, *, patience_s: float = 2.0) -> Client:
        """A connection to the server; it is opened by the first call."""
        self.called = True
        if self.connect is not None:
            return self.connect(self)
        from syncpoint.base.model.errors import InvalidArgument
        from syncpoint.front.client.client import Client, client_tls, parse_endpoint

        hosts = []
        for address in self.addresses:
            try:
                hosts.append(parse_endpoint(address)[0])
            except InvalidArgument as error:
                raise Problem(
                    f"{address!r} is not an address",
                    f"Write HOST:PORT, for example {ENDPOINT_DEFAULT}, in --endpoint, PUBSUB_EMULATOR_HOST or "
                    "`syncpoint config set endpoint`; several with commas between them.",
                    exit_code=2,
                ) from error
        if self.tls_key and not self.tls_cert:
            raise click.UsageError("--tls-key needs --tls-cert.")
        tls = None
        if self.tls_ca or self.tls_cert:
            with _explained(
                f"--tls-ca {self.tls_ca}",
                "It must hold certificates in PEM form: the server's own, or that of the authority that signed it.",
            ):
                tls = client_tls(self.tls_ca)
            if self.tls_cert:
                with _explained(
                    f"--tls-cert {self.tls_cert}" + (f" --tls-key {self.tls_key}" if self.tls_key else ""),
                    "Both must be in PEM form, and the key must be that of the first certificate.",
                ):
                    tls = client_tls(self.tls_ca, self.tls_cert, self.tls_key)
        credentials = self.credentials()
        if credentials is not None and tls is None and not all(map(loopback, hosts)):
            raise Problem(
                f"credentials are not sent to {self.endpoint} in the clear",
                "Connect with TLS: --tls-ca FILE.",
                exit_code=2,
            )
        return Client(
            ",".join(self.addresses),
            tls=tls,
            timeout_s=self.timeout_option or 60.0,
            patience_s=patience_s,
            credentials=credentials,
        )

    def reach(self) -> dict[str, Any]:
        """What a publisher or subscriber of `syncpoint.client` is made with: addresses, TLS, credentials."""
        with self.client() as client:
            return {"addresses": self.addresses, "tls": client.tls, "credentials": self.credentials()}

    def credentials(self) -> Credentials | None:
        """What to show to a server that asks who calls; None: nothing."""
        path = self.credentials_option or os.environ.get("SYNCPOINT_CREDENTIALS") or ""
        if not path:
            return None
        from syncpoint.front.client.credentials import Credentials

        with _explained(f"--credentials {path}", "It must hold a token, or the key of a service account (JSON)."):
            return Credentials(Path(path).expanduser())


@contextmanager
def _explained(what: str, advice: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:  # those of TLS are of this kind, too
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        raise Problem(f"cannot use {what}: {reason}", advice, exit_code=2) from error


def kept(name: str, option: str, **attributes: Any) -> tuple[str, Callable[[Callable[P, R]], Callable[P, R]]]:
    """An option by its name, which is stored in the run's settings; what stands nearer to the command wins."""

    def store(ctx: click.Context, parameter: click.Parameter, value: Any) -> None:
        settings = ctx.find_root().ensure_object(Settings)
        if value is not None:
            setattr(settings, name, value)

    return option, click.option(option, cls=CommonOption, callback=store, expose_value=False, **attributes)


_FILE: dict[str, Any] = {"type": click.Path(exists=True, dir_okay=False), "metavar": "FILE"}
COMMON = (
    kept("project_option", "--project", metavar="NAME", help="Project [PUBSUB_PROJECT_ID, or the configuration]."),
    kept(
        "endpoint_option",
        "--endpoint",
        metavar="HOST:PORT,...",
        help=f"Server; more addresses are used when one fails [{', '.join(ADDRESS_VARIABLES)}, or the configuration, "
        f"or {ENDPOINT_DEFAULT}].",
    ),
    kept("format_option", "--format", type=click.Choice(["table", "json"]), help="The output format [table]."),
    kept("wide", "--wide", is_flag=True, default=None, help="Do not truncate tables to the terminal's width."),
    kept(
        "timeout_option",
        "--timeout",
        type=SecondsType(0.001),
        help="Time to wait for an answer [60s].",
    ),
    kept("tls_ca", "--tls-ca", **_FILE, help="Connect with TLS, trusting the certificates in FILE."),
    kept("tls_cert", "--tls-cert", **_FILE, help="The client certificate, for servers that require it."),
    kept("tls_key", "--tls-key", **_FILE, help="The private key of --tls-cert."),
    kept(
        "credentials_option",
        "--credentials",
        **_FILE,
        help="Credentials: a token, or a service account's key file [SYNCPOINT_CREDENTIALS].",
    ),
)


def common_options(command: Callable[P, R]) -> Callable[P, R]:
    """Adds --project, --endpoint, --format, --wide, --timeout and those of TLS; they may stand before or after a
    command's name. A command that has an option of that name already, and means something else by it, keeps its own.
    """
    own = {name for one in getattr(command, "__click_params__", ()) for name in one.opts}
    for name, option in reversed(COMMON):
        if name not in own:
            command = option(command)
    return command


def with_settings(command: Callable[..., R]) -> Callable[..., R]:
    """Calls a command with the run's settings as its first argument, and adds the common options."""

    @functools.wraps(command)
    def call(*args: Any, **kwargs: Any) -> R:
        ctx = click.get_current_context()
        settings = ctx.find_root().ensure_object(Settings)
        settings.command = tuple(ctx.command_path.split()[1:])
        return command(settings, *args, **kwargs)

    return common_options(call)
