"""What a running process reports about its settings: those without what belongs to one place.

Place: part of a process's status, which `programs.clusters` collects; `syncpoint rollout check` compares it between
environments.
Promise: two processes of one role that are to behave alike report the same values, wherever they stand. Left out are
names, addresses, regions, weights and paths; of secrets and files it is said that there are some, never which.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from typing import Any

from syncpoint.node.cluster.settings import ClusterSettings, ProcessSettings


def reported_settings(settings: ClusterSettings, process: ProcessSettings) -> dict[str, Any]:
    """The settings as plain values, by the keys of the file."""
    found = {
        "classes": {name: _class(asdict(one)) for name, one in sorted(settings.classes.items())},
        "balance": settings.balance,
        "split_at": settings.split_at,
        "storage": asdict(settings.storage),
        "push": {"networks": sorted(settings.push.networks), "issuer": bool(settings.push.issuer)},
        "models": sorted(name for name, _ in settings.models),
        "buckets": sorted(name for name, _ in settings.buckets),
        "auth": settings.auth is not None,
        "insecure": settings.insecure,
        "sealing": settings.sealing_key_file is not None,
        "tls": settings.tls is not None,
        "client_certificates": settings.tls is not None and settings.tls.client_certificates,
        "process": {
            "require_disks": process.require_disks,
            "tls": process.tls_cert is not None,
            "tls_client_ca": process.tls_client_ca is not None,
            "metrics": bool(process.metrics),
        },
    }
    plain: dict[str, Any] = json.loads(json.dumps(found, default=str))
    return plain


def settings_digest(reported: dict[str, Any]) -> str:
    """Sixteen hexadecimal digits that differ when any reported value does."""
    text = json.dumps(reported, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _class(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key != "name"}
