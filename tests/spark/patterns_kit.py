"""A federation of six tasks with steps, and what should come of each message, worked out again in a few lines.

For tests that kill what carries them: each round publishes more, and then all that is at the targets is compared with
what should be: ids, data, attributes, the order of keys.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from syncpoint.programs.federation.patterns.registry import links_of
from syncpoint.programs.federation.servers import Servers
from syncpoint.programs.federation.spec import load
from syncpoint.testing.rigs.log_oracle import LogComparison, Message, judge
from tests.spark.federation_kit import Site, awaited, name_of

SOURCES = ("checked", "sorted", "named", "plain", "sales", "many-1", "many-2", "many-3")
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer", "maximum": 1_000_000}}, "required": ["n"]}
ROUND = 60  # messages of each topic and round


def content(clusters: dict[str, Site]) -> dict[str, Any]:
    def one(pattern: str, topic: str, **keys: Any) -> dict[str, Any]:
        ends = {"from": {"cluster": "a", "topic": name_of(topic)}, "to": {"cluster": "b", "topic": name_of(topic)}}
        return {"pattern": pattern, **ends, **keys}

    many = {"from": {"cluster": "a", "project": "fed", "topics": ["many-*"]}, "to": {"cluster": "b"}}
    return {
        "version": 1,
        "clusters": {name: {"endpoint": site.server.endpoint} for name, site in clusters.items()},
        "tasks": {
            "validate": one(
                "validate",
                "checked",
                schema={"type": "json-schema", "file": "n.schema.json"},
                invalid={"topic": name_of("checked-invalid")},
            ),
            "route": one(
                "route",
                "sorted",
                routes=[{"when": "attributes['n'] % 2 = 0", "topic": name_of("sorted-even")}],
            ),
            "enrich": one(
                "enrich",
                "named",
                lookups=[{"table": "names", "format": "json", "match": {"k": "k"}, "take": {"name": "name"}}],
                invalid="drop",
            ),
            "normalise": one(
                "normalise",
                "plain",
                schema="plain.avsc",
                by="format",
                inputs={"csv": {"format": "csv", "columns": ["n"]}, "json": {"format": "json"}},
                output={"format": "json"},
                invalid="drop",
            ),
            "consolidate": {
                "pattern": "consolidate",
                "from": {"clusters": ["a", "b"], "topic": name_of("sales")},
                "to": {"cluster": "b", "topic": name_of("all-sales")},
            },
            "many": {"pattern": "replicate", **many},
        },
        "runtime": {"max_rows": 25},
    }


class PatternTasks:
    """The file, what is published round by round, and what should have come of it."""

    def __init__(self, clusters: dict[str, Site], folder: Path) -> None:
        self.clusters, self.folder = clusters, folder / "patterns"
        self.published = 0
        (self.folder / "names").mkdir(parents=True)
        (self.folder / "names" / "names.json").write_text("".join(f'{{"k": {k}, "name": "n{k}"}}\n' for k in range(5)))
        (self.folder / "n.schema.json").write_text(json.dumps(SCHEMA))
        record = {"type": "record", "name": "Plain", "fields": [{"name": "n", "type": "long"}]}
        (self.folder / "plain.avsc").write_text(json.dumps(record))
        self.file = self.folder / "federation.yaml"
        self.file.write_text(json.dumps(content(clusters)))  # JSON is YAML
        for name in SOURCES:
            clusters["a"].topic(name)
        clusters["b"].topic("sales")

    def publish(self) -> None:
        begin, self.published = self.published, self.published + ROUND
        for name in SOURCES:
            self._publish("a", name, range(begin, self.published))
        self._publish("b", "sales", range(begin, self.published))

    def _publish(self, cluster: str, topic: str, numbers: range) -> None:
        messages = []
        for n in numbers:
            attributes = {"n": str(n)}
            data = json.dumps({"n": n})
            if topic == "checked" and n % 3 == 0:
                data = json.dumps({"n": "none"})
            if topic == "named":
                data = json.dumps({"k": n % 5, "n": n})
            if topic == "plain":
                attributes["format"] = "csv" if n % 2 else "json"
                data = f"{n}" if n % 2 else json.dumps({"n": str(n)})
            key = f"{cluster}-{n % 5}"
            messages.append({"data": data.encode(), "attributes": attributes, "ordering_key": key})
        for key in sorted({str(one["ordering_key"]) for one in messages}):
            mine = [one for one in messages if one["ordering_key"] == key]
            self.clusters[cluster].api.publish({"topic": name_of(topic), "messages": mine})

    def caught_up(self) -> None:
        """Wait until no flow has anything to do."""
        links = links_of(load(self.file))

        def done() -> bool:
            with Servers() as servers:
                progress = servers.progress_of(servers.flows(links))
                return len(progress) == 9 and all(one.lag == 0 and one.rows for one in progress)

        awaited(done, "all flows have copied everything", 400)

    def outcomes(self) -> Iterator[tuple[str, LogComparison]]:
        """By task: what should be at the target beside what is."""
        yield "validate", _together(self._validated())
        yield "route", _together(self._routed())
        yield "enrich", _together(self._enriched())
        yield "normalise", _together(self._normalised())
        yield "consolidate", _together(self._consolidated())
        yield (
            "three topics in one query",
            _together([(self._source(f"many-{n}"), self._target(f"many-{n}")) for n in (1, 2, 3)]),
        )

    def _source(self, topic: str, cluster: str = "a") -> list[Message]:
        return [one for one in self.clusters[cluster].log(name_of(topic)) if not one.origin]

    def _target(self, topic: str) -> list[Message]:
        return self.clusters["b"].log(name_of(topic))

    def _validated(self) -> list[tuple[list[Message], list[Message]]]:
        wanted = self._source("checked")
        letters = [
            replace(one, attributes={k: v for k, v in one.attributes.items() if not k.startswith("sys.")})
            for one in self._target("checked-invalid")
            if one.attributes["sys.DeadLetterReason"] == "ValidationFailed"
        ]
        bad = [one for one in wanted if int(one.attributes["n"]) % 3 == 0]
        return [([one for one in wanted if one not in bad], self._target("checked")), (bad, letters)]

    def _routed(self) -> list[tuple[list[Message], list[Message]]]:
        wanted = self._source("sorted")
        even = [one for one in wanted if int(one.attributes["n"]) % 2 == 0]
        return [(even, self._target("sorted-even")), ([o for o in wanted if o not in even], self._target("sorted"))]

    def _enriched(self) -> list[tuple[list[Message], list[Message]]]:
        wanted = []
        for one in self._source("named"):
            fields = json.loads(one.data)
            wanted.append(replace(one, data=_plain({**fields, "name": f"n{fields['k']}"})))
        return [(wanted, [replace(one, data=_plain(json.loads(one.data))) for one in self._target("named")])]

    def _normalised(self) -> list[tuple[list[Message], list[Message]]]:
        wanted = []
        for one in self._source("plain"):
            attributes = {"n": one.attributes["n"], "content-type": "application/json"}
            wanted.append(replace(one, data=f'{{"n":{one.attributes["n"]}}}'.encode(), attributes=attributes))
        return [(wanted, self._target("plain"))]

    def _consolidated(self) -> list[tuple[list[Message], list[Message]]]:
        found = self._target("all-sales")
        return [
            (
                [replace(one, attributes={**one.attributes, "region": name}) for one in self._source("sales", name)],
                [one for one in found if one.attributes["region"] == name],
            )
            for name in ("a", "b")
        ]


def _plain(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields, sort_keys=True).encode()


def _together(pairs: list[tuple[list[Message], list[Message]]]) -> LogComparison:
    """The comparisons of several topics as one."""
    found = [judge(wanted, stored) for wanted, stored in pairs]
    names = ("published", "stored", "missing", "twice", "changed", "foreign", "disordered")
    return LogComparison(**{name: sum(getattr(one, name) for one in found) for name in names})
