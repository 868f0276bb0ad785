"""The file of `--auth`: whose tokens and certificates are believed, and who owns the server.

Place: read at the start and again whenever it, or a key file it names, has changed.
Promise: a key or a value that means nothing is refused with its place; nothing secret stands in the file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from syncpoint.base.model.errors import InvalidArgument
from syncpoint.base.model.names import SERVICE_IDENTITY, parse_project
from syncpoint.base.model.settings_section import SettingsSection, load_settings
from syncpoint.catalog.access.accounts import OWN_DOMAIN, AccountNames, parse_email
from syncpoint.catalog.access.audit import FILE_BYTES_MAX, KEPT_BYTES_MAX, KEPT_DAYS
from syncpoint.catalog.access.policy import is_member, normal
from syncpoint.catalog.access.quotas import QUOTA_BOUND, Quota

ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "ES256", "ES384", "EdDSA")
"""Signatures by a private key, all of them: what anybody could make who knows the public one is not among them."""
ALGORITHMS_DEFAULT: Final = ("RS256", "ES256", "EdDSA")
PUBSUB_AUDIENCES: Final = ("https://pubsub.googleapis.com/", "https://pubsub.googleapis.com/google.pubsub.v1.Publisher",
                           "https://pubsub.googleapis.com/google.pubsub.v1.Subscriber",
                           "https://pubsub.googleapis.com/google.pubsub.v1.SchemaService")  # fmt: skip
"""What the official clients name in the tokens they sign themselves, wherever they send them."""
NO_QUOTA: Final = Quota()
DEFAULT_QUOTA: Final = "default"
_SUFFIX = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*", re.ASCII)
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, slots=True)
class Issuer:
    """One issuer of tokens. Its keys are at `jwks_url`, or in `jwks_file`. A caller is called by `claim`: an `email`
    in one of `domains`, or `sub`, to which the one domain is added.
    """

    issuer: str
    audiences: tuple[str, ...]
    jwks_url: str = ""
    jwks_file: Path | None = None
    algorithms: tuple[str, ...] = ALGORITHMS_DEFAULT
    kind: str = "user"
    claim: str = "email"
    domains: tuple[str, ...] = ()
    groups_claim: str = ""


@dataclass(frozen=True, slots=True)
class AuthSettings:
    """The whole file. `accounts`: files with public keys, by address; `certificates`: principals by what a client's
    certificate contains, such as `CN:etl` or `URI:spiffe://example.com/etl`.
    """

    owners: frozenset[str] = frozenset()
    audiences: tuple[str, ...] = ()
    issuers: Mapping[str, Issuer] = field(default_factory=dict)
    accounts: Mapping[str, tuple[Path, ...]] = field(default_factory=dict)
    certificates: Mapping[str, str] = field(default_factory=dict)
    service_identity: str = SERVICE_IDENTITY
    quota: Quota = NO_QUOTA
    quotas: Mapping[str, Quota] = field(default_factory=dict)
    audit_file: Path | None = None
    audit_data: bool = False
    audit_days: int = KEPT_DAYS
    audit_mib: int = KEPT_BYTES_MAX >> 20
    account_suffix: str = OWN_DOMAIN
    buckets: Mapping[str, frozenset[str]] = field(default_factory=dict)  # the projects that may export to it
    models: Mapping[str, frozenset[str]] = field(default_factory=dict)  # the projects that may ask it, by endpoint
    names: AccountNames = field(init=False)

    def __post_init__(self) -> None:
        principals = {*self.owners, *self.certificates.values(), self.service_identity}
        addresses = {one.partition(":")[2] for one in principals} | self.accounts.keys()
        domains = frozenset(domain for one in self.issuers.values() for domain in one.domains)
        object.__setattr__(self, "names", AccountNames(self.account_suffix, frozenset(addresses), domains))

    def may_use_bucket(self, project: str, bucket: str) -> bool:
        """Whether projects/P may export to a bucket: it has to be named for it."""
        return project in self.buckets.get(bucket, ())

    def may_use_model(self, project: str, endpoint: str) -> bool:
        """Whether projects/P may ask a model: one of its own, or one that is named for it."""
        return endpoint.startswith(f"{project}/") or project in self.models.get(endpoint, ())

    def quota_of(self, project: str) -> Quota:
        """What holds for projects/P."""
        return self.quotas.get(project, self.quota)

    @property
    def files(self) -> list[Path]:
        """The key files."""
        named = [path for paths in self.accounts.values() for path in paths]
        return named + [one.jwks_file for one in self.issuers.values() if one.jwks_file is not None]


def load(path: Path) -> AuthSettings:
    """Read the file. Raises `InvalidArgument` naming it."""
    return load_settings("auth", path, parse)


def parse(content: Any, base: Path = Path()) -> AuthSettings:
    """The file's content; relative paths start at `base`. Raises `InvalidArgument`."""
    top = _AccessSection({} if content is None else content, "")
    audiences = tuple(top.texts("audiences"))
    issuers = [
        _issuer(_AccessSection(one, f"issuers[{number}]"), audiences, base) for number, one in top.each("issuers")
    ]
    accounts = {}
    for number, one in top.each("service_accounts"):
        reader = _AccessSection(one, f"service_accounts[{number}]")
        email = parse_email(reader.text("email"))
        accounts[email] = tuple(base / name for name in reader.texts("key_files"))
        reader.done()
    certificates = {}
    for number, one in top.each("certificates"):
        reader = _AccessSection(one, f"certificates[{number}]")
        match = reader.text("match")
        if match.partition(":")[0] not in ("CN", "URI", "DNS", "EMAIL") or not match.partition(":")[2]:
            raise reader.refused("match", "write CN:, URI:, DNS: or EMAIL: and what must stand in the certificate")
        certificates[match] = reader.principal("principal")
        reader.done()
    owners = top.texts("owners")
    for owner in owners:
        if not is_member(owner) or owner.partition(":")[0] not in ("user", "serviceAccount", "group"):
            raise top.refused("owners", f"{owner!r} is not user:, serviceAccount: or group: and an address")
    quotas = {name: _quota(_AccessSection(one, f"quotas.{name}")) for name, one in top.mapping("quotas").items()}
    for name in quotas.keys() - {DEFAULT_QUOTA}:
        parse_project(name)
    audit = _AccessSection(top.value("audit") or {}, "audit")
    audit_file, audit_data = audit.text("file"), audit.flag("data")
    audit_days = int(audit.number("kept_days", KEPT_DAYS))
    audit_mib = int(audit.number("kept_mib", KEPT_BYTES_MAX >> 20))
    least_mib = 2 * FILE_BYTES_MAX >> 20
    if audit_days < 1 or audit_mib < least_mib:
        raise audit.refused("kept_days", f"at least 1 is needed, and of `kept_mib` at least {least_mib}")
    audit.done()
    top.mapping("buckets")
    top.mapping("models")
    suffix = top.text("account_suffix") or OWN_DOMAIN
    if _SUFFIX.fullmatch(suffix) is None or len(suffix) > 100:
        raise top.refused("account_suffix", "a domain is needed, in lower case, such as example.com")
    top.text("service_identity")
    top.done()
    if len({one.issuer for one in issuers}) != len(issuers):
        raise InvalidArgument("issuers", "one of them is named twice")
    return AuthSettings(
        frozenset(map(normal, owners)),
        audiences,
        {one.issuer: one for one in issuers},
        accounts,
        certificates,
        top.principal("service_identity") if top.text("service_identity") else SERVICE_IDENTITY,
        quotas.pop(DEFAULT_QUOTA, NO_QUOTA),
        quotas,
        base / audit_file if audit_file else None,
        audit_data,
        audit_days,
        audit_mib,
        suffix,
        _users(top, "buckets"),
        _users(top, "models"),
    )


def _users(top: _AccessSection, key: str) -> dict[str, frozenset[str]]:
    """The projects for which each of what the server uses is named."""
    section = _AccessSection(top.mapping(key), key)
    return {name: frozenset(map(parse_project, section.texts(name))) for name in top.mapping(key)}


def _issuer(reader: _AccessSection, audiences: tuple[str, ...], base: Path) -> Issuer:
    own = tuple(reader.texts("audiences")) or audiences
    if not own:
        raise reader.refused("audiences", "say for whom tokens must be made, here or for the whole file")
    url, file = reader.text("jwks_url"), reader.text("jwks_file")
    if bool(url) == bool(file):
        raise reader.refused("jwks_url", "give either `jwks_url` or `jwks_file`")
    if url:
        parts = urlsplit(url)
        if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in _LOOPBACK):
            raise reader.refused("jwks_url", "must begin with https://")
    algorithms = tuple(reader.texts("algorithms")) or ALGORITHMS_DEFAULT
    for one in algorithms:
        if one not in ALGORITHMS:
            raise reader.refused("algorithms", f"{one!r} is none of {', '.join(ALGORITHMS)}")
    kind, claim = reader.text("kind") or "user", reader.text("claim") or "email"
    if kind not in ("user", "serviceAccount"):
        raise reader.refused("kind", "must be user or serviceAccount")
    if claim not in ("email", "sub"):
        raise reader.refused("claim", "must be email or sub")
    domains = tuple(one.lower() for one in reader.texts("domains"))
    if not domains or (claim == "sub" and len(domains) != 1):
        raise reader.refused("domains", "say which domains this issuer speaks for (with `claim: sub`, the one to add)")
    made = Issuer(
        reader.text("issuer"),
        own,
        url,
        base / file if file else None,
        algorithms,
        kind,
        claim,
        domains,
        reader.text("groups_claim"),
    )
    if not made.issuer:
        raise reader.refused("issuer", "is missing: what tokens have in `iss`")
    reader.done()
    return made


def _quota(reader: _AccessSection) -> Quota:
    made = Quota(
        reader.number("requests_per_s"),
        reader.number("bytes_per_s"),
        int(reader.number("outstanding_bytes")),
        int(reader.number("connections")),
        int(reader.number("streams")),
        int(reader.number("topics")),
        int(reader.number("subscriptions")),
        reader.number("cpu", NO_QUOTA.cpu),
    )
    reader.done()
    return made


class _AccessSection(SettingsSection):
    """One mapping of the file that decides who may call: a value is never taken for a string that is none."""

    def text(self, key: str) -> str:
        value = self.value(key)
        if value is not None and not isinstance(value, str):
            raise self.refused(key, "a text is needed")
        return value or ""

    def number(self, key: str, default: float = 0.0) -> float:
        value = self.value(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < QUOTA_BOUND:
            raise self.refused(key, "a number is needed, 0 or more")
        return float(value)

    def mapping(self, key: str) -> dict[str, Any]:
        value = self.value(key)
        if value is not None and not (isinstance(value, dict) and all(isinstance(one, str) for one in value)):
            raise self.refused(key, "a mapping of names is needed")
        return dict(value or {})

    def texts(self, key: str) -> list[str]:
        return [self._text_of(key, one) for _, one in self.each(key)]

    def principal(self, key: str) -> str:
        member = self.text(key)
        if not is_member(member) or member.partition(":")[0] not in ("user", "serviceAccount"):
            raise self.refused(key, "write user: or serviceAccount: and an address")
        return normal(member)

    def _text_of(self, key: str, value: Any) -> str:
        if not isinstance(value, str):
            raise self.refused(key, "a list of texts is needed")
        return value
