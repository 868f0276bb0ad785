"""What may leave an installation in a support bundle: states, numbers and names, and nothing that a user wrote.

Place: under `support_bundle`; plain functions on values and texts.
Promises: of structured values, text is kept only in fields that are known to hold names, states, addresses or versions
(`KEPT`); all other text, and all bytes, are replaced by their length. Logs and metrics, which are free text, lose what
looks like a secret, and the secrets that are known (`SecretTexts`). In doubt something is removed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

KEPT = frozenset(
    (
        *(
            "action",
            "address",
            "allowed_persistence_regions",
            "backup_cluster",
            "cluster",
            "clusters",
            "commit",
            "controller",
        ),
        *(
            "dead_letter_topic",
            "disk",
            "disks",
            "disks_listen",
            "durability",
            "durability_class",
            "field",
            "forward_to",
        ),
        *("home", "incarnation", "kernel", "listen", "metric", "metrics", "month", "name"),
        *("objective", "over", "owner", "path", "placement", "platform", "process", "processes"),
        *("project", "projects", "public", "publisher", "python", "rack", "racks", "records_topic"),
        *("region", "regions", "restarting", "role", "roles", "rule", "runbook", "schema"),
        *("sli", "slo", "snapshot", "state", "states", "step", "steps", "subscription"),
        *("topic", "topics", "uptime", "version", "waits_for", "within", "zone"),
    )
)
"""Fields, as messages and cluster.yaml name them, whose text is kept."""

USERS = frozenset(
    ["labels", "attributes", "tags", "models", "buckets", "headers", "options", "parameters", "environment"]
)
"""Maps whose keys a user chose, too: of these only the number of entries is kept."""

_TIME = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+(Z|[+-]\d\d:\d\d)|\d+(\.\d+)?s|-?\d+(\.\d+)?")
_ENUM = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)*")
_WORDS = r"pass(?:word|wd|phrase)?|secret|token|credentials?|authorization|cookie|api[_-]?key|private[_-]?key|signature"
_SECRETS = (
    re.compile(r"-----BEGIN [^-]+-----.*?(?:-----END [^-]+-----|\Z)", re.DOTALL),
    re.compile(r"\beyJ[\w-]{8,}(?:\.[\w-]+)*"),  # tokens in JSON
    re.compile(r"(?i)\b(?:bearer|basic|digest)\s+[^\s\"',;]+"),
    re.compile(
        rf"(?i)[\"']?\b[\w.-]*(?:{_WORDS})[\w.-]*[\"']?\s*(?:[:=]|\bis\b)\s*(?:\"[^\"\n]*\"|'[^'\n]*'|[^\s,;}}]+)"
    ),
    re.compile(r"\b(?:AKIA|ASIA|ghp_|gho_|xox[abp]-|sk[-_])[\w-]{10,}"),
    re.compile(r"(?<![\w/.+-])(?=[\w+/-]*[A-Za-z])(?=[\w+/-]*\d)[\w+-]{40,}={0,2}(?![\w/])"),  # keys in base64 or hex
)
OWN_PATHS = ("/", "/console/", "/metrics")
_URL = re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s\"'<>]+", re.IGNORECASE)


def removed(size: int) -> str:
    """What stands in place of a text."""
    return f"[removed: {size} characters]"


def scrubbed(value: Any, field: str = "") -> Any:
    """A value as JSON or YAML has it, without text that is not known to be harmless. `field`: what holds it."""
    if isinstance(value, Mapping):
        if field in USERS:
            return f"[removed: {len(value)} entries]"
        return {without_secrets(str(name)): scrubbed(one, _snake(str(name))) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [scrubbed(one, field) for one in value]
    if value is None or isinstance(value, (bool, int, float)):
        return value
    text = str(value)
    if field in KEPT or _TIME.fullmatch(text):
        return without_secrets(text)
    if len(text) <= 40 and _ENUM.fullmatch(text) and field.endswith(("state", "status", "kind", "encoding", "type")):
        return text
    return removed(len(text))


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower()


def without_secrets(text: str) -> str:
    """Free text without what looks like a secret; of an address, scheme and host are kept."""
    text = _URL.sub(lambda found: _address(found[0]), text)
    for pattern in _SECRETS:
        text = pattern.sub(lambda found: removed(len(found[0])), text)
    return text


def _address(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:
        return removed(len(url))
    host = parts.netloc.rpartition("@")[2]
    path = next((one for one in OWN_PATHS if parts.path == one or parts.path == one + ")"), "")
    shown = f"{parts.scheme}://{host}{path and parts.path}"
    return shown + (removed(len(url) - len(shown)) if len(url) > len(shown) else "")


class SecretTexts:
    """Secrets that the program itself was given: they are removed wherever they stand."""

    def __init__(self, texts: Iterable[str]) -> None:
        """Texts of fewer than six characters are left out: they would be found in words."""
        self._texts = sorted({one for text in texts for one in _parts(text) if len(one) >= 6}, key=len, reverse=True)

    def removed_from(self, text: str) -> str:
        """The text without any of them."""
        for secret in self._texts:
            text = text.replace(secret, removed(len(secret)))
        return text


def _parts(text: str) -> list[str]:
    """A secret, and its lines: a key in PEM form is found in a log with or without them."""
    whole = text.strip()
    return [whole, *(line.strip() for line in whole.splitlines())] if whole else []
