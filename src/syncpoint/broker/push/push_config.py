"""Push configs: which values of `push_config` are accepted, and why others are refused.

Place: asked when a subscription is made or changed, and by ModifyPushConfig, before anything is changed. Only what is
written is checked: what a name stands for is vetted at every connection, by `addresses` and `own_endpoints`.
Promise: whatever passes can be pushed to by `http_sender`. Refusals are INVALID_ARGUMENT and name the field.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final
from urllib.parse import urlsplit

from syncpoint.base.model.errors import InvalidArgument
from syncpoint.base.model.names import SERVICE_ACCOUNT
from syncpoint.broker.push.addresses import LOOPBACK, Vetting
from syncpoint.broker.push.own_endpoints import REFUSED
from syncpoint.catalog.metadata.records import Subscription
from syncpoint.wire.protobuf.messages import pubsub

ENDPOINT_CHARACTERS_MAX: Final = 2_048
AUDIENCE_CHARACTERS_MAX: Final = 2_048
VERSION: Final = "x-goog-version"
VERSION_DEFAULT: Final = "v1"
VERSIONS: Final = frozenset(("v1beta1", "v1beta2", "v1"))
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?", re.ASCII | re.IGNORECASE)
_URL = re.compile(r"[!-~]+")  # no white space, nothing that is not ASCII
_NUMBER = re.compile(r"(0x[0-9a-f]*|[0-9]+)", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A push endpoint in its parts. `target`: path and query."""

    scheme: str
    host: str
    port: int
    target: str


def check_push_config(config: pubsub.PushConfig, vetting: Vetting) -> None:
    """Raise `InvalidArgument` unless pushes can be made so. One without an endpoint means pull, and passes; missing
    defaults are filled in.
    """
    if not config.push_endpoint:
        for field in ("oidc_token", "pubsub_wrapper", "no_wrapper"):
            if config.HasField(field):
                raise _refused(f"push_config.{field}", "may only be set together with push_endpoint")
        config.attributes.clear()
        return
    endpoint_of(config.push_endpoint, vetting)
    for name, value in config.attributes.items():
        if name != VERSION:
            raise _refused("push_config.attributes", f"{name!r} is not supported; only {VERSION} is")
        if value not in VERSIONS:
            raise _refused("push_config.attributes", f"{value!r} is not a supported {VERSION}")
    if VERSION not in config.attributes:
        config.attributes[VERSION] = VERSION_DEFAULT
    if config.HasField("oidc_token"):
        _check_token(config.oidc_token)


def endpoint_of(url: str, vetting: Vetting) -> Endpoint:
    """The parts of a push endpoint. Raises `InvalidArgument`."""
    try:
        return _parsed(url, vetting)
    except ValueError as problem:
        shown = url if url.isprintable() and len(url) <= 256 else f"{url[:256]!r}"
        raise _refused("", f"Invalid push endpoint given (endpoint={shown}): {problem}.") from None


def push_config_of(record: Subscription) -> pubsub.PushConfig | None:
    """How a subscription is pushed; None for one that is pulled, or is detached."""
    if record.detached or not record.config:
        return None
    config: pubsub.PushConfig = pubsub.Subscription.FromString(record.config).push_config
    return config if config.push_endpoint else None


@lru_cache(maxsize=4_096)
def _is_pushed(config: bytes) -> bool:
    return bool(pubsub.Subscription.FromString(config).push_config.push_endpoint)


def is_pushed(record: Subscription) -> bool:
    """Whether a subscription has an endpoint; cheap enough to be asked at every pull."""
    return bool(record.config) and _is_pushed(record.config)


def _parsed(url: str, vetting: Vetting) -> Endpoint:
    if len(url) > ENDPOINT_CHARACTERS_MAX:
        raise ValueError(f"it must not be longer than {ENDPOINT_CHARACTERS_MAX} characters")
    if not _URL.fullmatch(url) or "\\" in url:
        raise ValueError("it has characters that are not allowed in a URL")
    parts = urlsplit(url)  # raises ValueError for brackets that are no address
    if parts.scheme not in ("https", "http"):
        raise ValueError("it must begin with https://")
    if "@" in parts.netloc:
        raise ValueError("it must not name a user")
    if parts.fragment or "#" in url:
        raise ValueError("it must not have a fragment")
    host, port = parts.hostname, parts.port  # the latter raises ValueError, too
    if not host or port == 0 or parts.netloc.endswith(":"):
        raise ValueError("it must name a host, and may name a port")
    address = _address(host)
    if address is None and not _is_name(host):
        raise ValueError("its host must be a domain name or an IP address in the usual notation")
    local = host == "localhost" if address is None else any(address in net for net in LOOPBACK)
    if parts.scheme == "http" and not (local and vetting.loopback):
        raise ValueError("it must begin with https:// (the operator can allow http://localhost)")
    if address is not None and not vetting.permits(address):
        raise ValueError("pushes may not go to this address (the operator can allow it)")
    if local and not vetting.loopback:
        raise ValueError("pushes may not go to this address (the operator can allow it)")
    port = port or (443 if parts.scheme == "https" else 80)
    if vetting.own.certain(host, port):
        raise ValueError(f"it {REFUSED}")
    target = parts.path or "/"
    if parts.query:
        target += f"?{parts.query}"
    return Endpoint(parts.scheme, host, port, target)


def _address(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def _is_name(host: str) -> bool:
    """Whether it is a name of the domain name system. Old ways to write addresses (2130706433, 0x7f.1, 127.1) are none:
    resolvers take them for addresses.
    """
    labels = host.removesuffix(".").split(".")
    if len(host) > 253 or _NUMBER.fullmatch(labels[-1]):
        return False
    return all(_LABEL.fullmatch(label) for label in labels)


def _check_token(token: pubsub.PushConfig.OidcToken) -> None:
    if not SERVICE_ACCOUNT.fullmatch(token.service_account_email):
        raise _refused("push_config.oidc_token.service_account_email", "must be the address of a service account")
    if len(token.audience) > AUDIENCE_CHARACTERS_MAX or not token.audience.isprintable():
        raise _refused(
            "push_config.oidc_token.audience",
            f"must be printable and at most {AUDIENCE_CHARACTERS_MAX} characters long",
        )


def _refused(field: str, problem: str) -> InvalidArgument:
    error = InvalidArgument(field, problem)
    error.field = field or "push_config.push_endpoint"
    return error
