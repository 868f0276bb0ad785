"""Flows from and to a Kafka broker that asks who calls, over TLS: the account stands in a file, and nowhere else.

One broker, one server, one job. Run by `make test-kafka`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from syncpoint.programs.cli.main import cli
from syncpoint.testing.kafka.kafka_broker import KafkaBroker
from syncpoint.testing.rigs.certificates import Authority
from syncpoint.testing.server_process import ServerProcess
from tests.spark.federation_kit import RunningJob, Site, awaited, name_of, running_job

pytest.importorskip("kafka")
from syncpoint.testing.kafka import kafka_client
from tests.spark.kafka_kit import check_once_in_order, produced

pytestmark = pytest.mark.shows("streams")

PASSWORD, WRONG = "f3a81b7c-right", "f3a81b7c-wrong"
LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
TASKS = {
    "in": {"from": {"stream": "lake", "topic": "orders"}, "to": {"cluster": "eu", "topic": name_of("orders")}},
    "out": {"from": {"cluster": "eu", "topic": name_of("orders")}, "to": {"stream": "back", "topic": "accepted"}},
    "refused": {"from": {"stream": "other", "topic": "orders"}, "to": {"cluster": "eu", "topic": name_of("none")}},
}


@dataclass
class Secured:
    """What the tests look at."""

    site: Site
    broker: KafkaBroker
    running: RunningJob
    folder: Path

    @property
    def file(self) -> str:
        return str(self.folder / "federation.yaml")


@pytest.fixture(scope="module")
def secured(jars: list[Path], spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    authority = Authority(folder / "certificates")
    certificate, key = authority.issue("broker")
    keystore = folder / "certificates" / "both.pem"
    keystore.write_bytes(key.read_bytes() + certificate.read_bytes())
    settings = {
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": f'{LOGIN} user_reader="{PASSWORD}";',
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(keystore),
    }
    for name, password in (("lake", PASSWORD), ("back", PASSWORD), ("other", WRONG)):
        (folder / f"{name}-account").write_text(f'{LOGIN} username="reader" password="{password}";')
    site = Site("eu", ServerProcess(folder / "eu").start())
    try:
        site.topic("orders")
        site.topic("none")
        with KafkaBroker(folder / "kafka", jars, more=settings) as broker:
            kafka_client.create_topics(broker.address, {"orders": 2, "accepted": 1})
            content = {
                "version": 1,
                "clusters": {"eu": {"endpoint": site.server.endpoint}},
                "streams": {name: {"kafka": _stream(broker, authority, name)} for name in ("lake", "back", "other")},
                "tasks": {
                    name: {"pattern": "queue-to-stream" if name == "out" else "stream-to-queue", **ends}
                    for name, ends in TASKS.items()
                },
                "runtime": {"state": str(folder / "state"), "master": "local[2]"},
            }
            (folder / "federation.yaml").write_text(json.dumps(content))  # JSON is YAML
            with running_job(spark, content, folder) as running:
                yield Secured(site, broker, running, folder)
    finally:
        site.close()


def _stream(broker: KafkaBroker, authority: Authority, name: str) -> dict[str, Any]:
    return {
        "bootstrap": broker.secure_address,
        "options": {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": {"file": f"{name}-account"},
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(authority.ca),
        },
    }


def test_records_come_and_go_over_tls_by_an_account(secured: Secured) -> None:
    sent = produced(secured.broker.address, "orders", range(200))
    log = awaited(lambda: len(found := secured.site.log(name_of("orders"))) >= len(sent) and found, "all records come")
    check_once_in_order(log, sent)
    back = awaited(
        lambda: len(found := kafka_client.records_of(secured.broker.address, "accepted")) >= len(sent) and found,
        "and all go back",
    )
    assert {one.value for one in back} == {one.value for one in sent}


def test_a_wrong_password_stops_its_own_flow_alone_and_is_said(secured: Secured) -> None:
    def failed() -> Any:
        said = secured.running.state.flows().get("refused.orders")
        return said if said is not None and said.state == "failed" and said.error else None

    said = awaited(failed, "the flow with the wrong password fails")
    assert "Authentication failed" in said.error, said.error
    assert secured.site.log(name_of("none")) == []
    assert secured.running.state.flows()["in.orders"].error == ""


def test_no_password_is_in_plans_states_and_logs(secured: Secured) -> None:
    result = CliRunner().invoke(cli, ["federation", "plan", secured.file], prog_name="syncpoint")
    assert result.exit_code == 0, result.output
    shown = [result.output, json.dumps({name: one.error for name, one in secured.running.state.flows().items()})]
    texts = [*shown, *(path.read_bytes().decode("latin-1") for path in _files(secured.folder / "state"))]
    assert len(texts) > 10, "there are checkpoints"
    assert not [one for one in texts if PASSWORD in one or WRONG in one]


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file())
