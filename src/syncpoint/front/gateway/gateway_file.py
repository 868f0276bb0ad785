"""gateway.yaml: the sites, and when one of them is left.

Place: read by `syncpoint gateway`. Promise: the file is held against `schema.json` and against itself; a mistake is
refused with its place and what would be right. Credentials are referred to by file, and never read here.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from syncpoint.base.model.documents import check_document, load_document, schema_of
from syncpoint.base.model.durations import in_seconds
from syncpoint.base.model.errors import InvalidArgument
from syncpoint.base.model.hosts import loopback
from syncpoint.front.gateway.ack_tags import tags_of
from syncpoint.wire.transport.network import split_address


@dataclass(frozen=True)
class SiteSpec:
    """One site: a node, or any address of a cluster. Paths are of files; `credentials`: of the gateway's own calls."""

    name: str
    endpoint: str
    region: str = ""
    weight: int = 100
    tls: bool = False
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    credentials: Path | None = None


@dataclass(frozen=True)
class HealthSettings:
    """How sites are probed."""

    interval_s: float = 0.5
    timeout_s: float = 0.7
    failures: int = 2
    successes: int = 6


@dataclass(frozen=True)
class Budget:
    """How many changes of sites there may be within a time."""

    changes: int = 6
    within_s: float = 600.0


@dataclass(frozen=True)
class CallerLimits:
    """What each caller may have under way."""

    streams_per_caller: int = 1000
    bytes_per_caller: int = 64 << 20


@dataclass(frozen=True)
class DualTopics:
    """Topics by pattern (`*` for any letters) that are written to two sites. `answer`: strict, degrade or available."""

    topics: str
    answer: str = "degrade"


@dataclass(frozen=True)
class GatewayFile:
    """The whole file."""

    sites: tuple[SiteSpec, ...]
    listen: str = "127.0.0.1:8085"
    region: str = ""
    cert: Path | None = None
    key: Path | None = None
    health: HealthSettings = HealthSettings()
    budget: Budget = Budget()
    drain_s: float = 10.0
    limits: CallerLimits = CallerLimits()
    admin: str = "127.0.0.1:9470"
    admin_token: Path | None = None
    dual: tuple[DualTopics, ...] = ()
    lag: int = 1000
    federation: str = ""
    peers: tuple[str, ...] = ()


def parse(content: Any, base: Path) -> GatewayFile:
    """The file's content; relative paths start at `base`. Raises `InvalidArgument`."""
    check_document(content, schema_of("syncpoint.front.gateway"), "the file", within="{path}")
    sites = tuple(_site(name, keys, base) for name, keys in content["sites"].items())
    tags_of(one.name for one in sites)
    tls, admin, dual = content.get("tls", {}), content.get("admin", {}), content.get("dual", [])
    if dual and len(sites) != 2:
        raise InvalidArgument("dual", f"needs two sites, and the file has {len(sites)}; run a gateway for each pair")
    made = GatewayFile(
        sites=sites,
        listen=content.get("listen", GatewayFile.listen),
        region=content.get("region", ""),
        cert=_path(tls.get("cert"), base),
        key=_path(tls.get("key"), base),
        health=_health(content.get("health", {})),
        budget=_budget(content.get("budget", {})),
        drain_s=in_seconds(content.get("drain", "10s")),
        limits=CallerLimits(**content.get("limits", {})),
        admin=admin.get("listen", GatewayFile.admin),
        admin_token=_path(admin.get("token_file"), base),
        dual=tuple(DualTopics(**one) for one in dual),
        lag=content.get("recover", {}).get("lag", GatewayFile.lag),
        federation=content.get("recover", {}).get("federation", ""),
        peers=tuple(content.get("peers", ())),
    )
    host, _ = split_address(made.admin)
    if made.admin_token is None and not loopback(host):
        raise InvalidArgument("admin.token_file", f"is needed where others reach the address ({made.admin})")
    return made


load = partial(load_document, parse)


def _site(name: str, keys: dict[str, Any], base: Path) -> SiteSpec:
    tls = keys.get("tls")
    return SiteSpec(
        name,
        keys["endpoint"],
        keys.get("region", ""),
        keys.get("weight", 100),
        tls is not None,
        _path((tls or {}).get("ca"), base),
        _path((tls or {}).get("cert"), base),
        _path((tls or {}).get("key"), base),
        _path(keys.get("credentials"), base),
    )


def _health(keys: dict[str, Any]) -> HealthSettings:
    return HealthSettings(
        in_seconds(keys.get("interval", "500ms")),
        in_seconds(keys.get("timeout", "700ms")),
        keys.get("failures", HealthSettings.failures),
        keys.get("successes", HealthSettings.successes),
    )


def _budget(keys: dict[str, Any]) -> Budget:
    return Budget(keys.get("changes", Budget.changes), in_seconds(keys.get("within", "10m")))


def _path(text: str | None, base: Path) -> Path | None:
    return None if text is None else base / text
