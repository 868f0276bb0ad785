"""What processes say they were given is the same wherever they stand, and differs where they would behave otherwise."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from syncpoint.node.cluster.reported import reported_settings, settings_digest
from syncpoint.node.cluster.settings import load, parse, source_of


def reported(process: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    proxy = {"roles": ["proxy"], "listen": "127.0.0.1:7000", "public": "127.0.0.1:7001", **(process or {})}
    settings = parse({"cluster": "a", "metadata": {"etcd": ["h:1"]}, "processes": {"p": proxy}, **changes}, Path("/x"))
    return reported_settings(settings, settings.processes["p"])


def test_places_and_secrets_make_no_difference() -> None:
    usual = reported(
        auth="/etc/a.yaml", buckets={"lake": {"url": "s3://b", "options": {"key": "$K", "secret": "s3cret"}}}
    )
    other = reported(
        {"listen": "10.0.0.1:7000", "region": "eu", "weight": 2.0},
        cluster="b",
        metadata={"etcd": ["other:1"]},
        auth="/other/b.yaml",
        buckets={"lake": "/mnt/lake"},
    )
    assert usual == other
    assert "s3cret" not in json.dumps(usual)
    assert json.loads(json.dumps(usual)) == usual


def test_what_changes_how_they_behave_does() -> None:
    usual = settings_digest(reported())
    for change in (
        {"auth": "a.yaml"},
        {"storage": {"hung_s": 12}},
        {"balance": 0.5},
        {"classes": {"fast": {"durability": "memory"}}},
        {"push": {"networks": ["10.0.0.0/8"]}},
        {"models": {"projects/p/locations/l/endpoints/e": "https://m.example"}},
    ):
        assert settings_digest(reported(**change)) != usual, change
    assert settings_digest(reported({"metrics": "127.0.0.1:1"})) != usual


def test_a_file_is_known_by_its_bytes(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text("metadata: {etcd: [h:1]}\n")
    assert load(path).source == source_of(path.read_bytes()) != source_of(b"")
    assert parse({"metadata": {"etcd": ["h:1"]}}).source == ""
