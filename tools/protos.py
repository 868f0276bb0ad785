"""Keeps the protobuf contracts: `compile` builds the descriptors that are shipped, `import` refreshes the interface.

    python tools/protos.py compile    proto/**/*.proto -> src/syncpoint/wire/protobuf/descriptors.binpb and stubs/*.pyi
    python tools/protos.py import     installed google-cloud-pubsub -> proto/google/pubsub/v1/*.proto
    python tools/protos.py check      fails when the committed files are not those of the sources

Both need the development environment; a running server reads nothing but the descriptors, a type checker nothing but
the stubs, of which each package has one. `import` takes names, numbers and types from the descriptors inside the
official Python package, which is published earlier than any other copy of the interface. Descriptors hold no service
definitions there, so the methods stand in a table below; how they are called over HTTP is in the package's own clients.
"""

from __future__ import annotations

import importlib
import importlib.resources
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PROTO = ROOT / "proto"
WIRE = ROOT / "src" / "syncpoint" / "wire" / "protobuf"
PACKAGE = "google.pubsub.v1"
EMPTY = "google.protobuf.Empty"

SERVICES: dict[str, dict[str, list[tuple[str, str, str]]]] = {
    "pubsub": {
        "Publisher": [
            ("CreateTopic", "Topic", "Topic"),
            ("UpdateTopic", "UpdateTopicRequest", "Topic"),
            ("Publish", "PublishRequest", "PublishResponse"),
            ("GetTopic", "GetTopicRequest", "Topic"),
            ("ListTopics", "ListTopicsRequest", "ListTopicsResponse"),
            ("ListTopicSubscriptions", "ListTopicSubscriptionsRequest", "ListTopicSubscriptionsResponse"),
            ("ListTopicSnapshots", "ListTopicSnapshotsRequest", "ListTopicSnapshotsResponse"),
            ("DeleteTopic", "DeleteTopicRequest", EMPTY),
            ("DetachSubscription", "DetachSubscriptionRequest", "DetachSubscriptionResponse"),
        ],
        "Subscriber": [
            ("CreateSubscription", "Subscription", "Subscription"),
            ("GetSubscription", "GetSubscriptionRequest", "Subscription"),
            ("UpdateSubscription", "UpdateSubscriptionRequest", "Subscription"),
            ("ListSubscriptions", "ListSubscriptionsRequest", "ListSubscriptionsResponse"),
            ("DeleteSubscription", "DeleteSubscriptionRequest", EMPTY),
            ("ModifyAckDeadline", "ModifyAckDeadlineRequest", EMPTY),
            ("Acknowledge", "AcknowledgeRequest", EMPTY),
            ("Pull", "PullRequest", "PullResponse"),
            ("StreamingPull", "stream StreamingPullRequest", "stream StreamingPullResponse"),
            ("ModifyPushConfig", "ModifyPushConfigRequest", EMPTY),
            ("GetSnapshot", "GetSnapshotRequest", "Snapshot"),
            ("ListSnapshots", "ListSnapshotsRequest", "ListSnapshotsResponse"),
            ("CreateSnapshot", "CreateSnapshotRequest", "Snapshot"),
            ("UpdateSnapshot", "UpdateSnapshotRequest", "Snapshot"),
            ("DeleteSnapshot", "DeleteSnapshotRequest", EMPTY),
            ("Seek", "SeekRequest", "SeekResponse"),
        ],
    },
    "schema": {
        "SchemaService": [
            ("CreateSchema", "CreateSchemaRequest", "Schema"),
            ("GetSchema", "GetSchemaRequest", "Schema"),
            ("ListSchemas", "ListSchemasRequest", "ListSchemasResponse"),
            ("ListSchemaRevisions", "ListSchemaRevisionsRequest", "ListSchemaRevisionsResponse"),
            ("CommitSchema", "CommitSchemaRequest", "Schema"),
            ("RollbackSchema", "RollbackSchemaRequest", "Schema"),
            ("DeleteSchemaRevision", "DeleteSchemaRevisionRequest", "Schema"),
            ("DeleteSchema", "DeleteSchemaRequest", EMPTY),
            ("ValidateSchema", "ValidateSchemaRequest", "ValidateSchemaResponse"),
            ("ValidateMessage", "ValidateMessageRequest", "ValidateMessageResponse"),
        ],
    },
}

IMPORTS = {
    "pubsub": ("duration", "empty", "field_mask", "struct", "timestamp"),
    "schema": ("empty", "timestamp"),
}


def _type_name(field: Any) -> str:
    """How a field's type is spelled inside the interface's own package."""
    if field.message_type is not None:
        name: str = field.message_type.full_name
    elif field.enum_type is not None:
        name = field.enum_type.full_name
    else:
        kind = {getattr(field, key): key[5:].lower() for key in dir(field) if key.startswith("TYPE_")}
        return kind[field.type]
    return name.removeprefix(PACKAGE + ".")


def _field_line(field: Any) -> str:
    # The Python package appends an underscore to names that are keywords of Python; the interface has none.
    name = field.name.rstrip("_")
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        key, value = entry.fields_by_name["key"], entry.fields_by_name["value"]
        return f"map<{_type_name(key)}, {_type_name(value)}> {name} = {field.number};"
    label = "repeated " if field.is_repeated else ""
    return f"{label}{_type_name(field)} {name} = {field.number};"


def _enum_lines(enum: Any, indent: str) -> Iterator[str]:
    yield f"{indent}enum {enum.name} {{"
    for value in enum.values:
        yield f"{indent}  {value.name} = {value.number};"
    yield f"{indent}}}"


def _message_lines(message: Any, indent: str = "") -> Iterator[str]:
    yield f"{indent}message {message.name} {{"
    inner = indent + "  "
    for enum in message.enum_types:
        yield from _enum_lines(enum, inner)
    for nested in message.nested_types:
        if not nested.GetOptions().map_entry:
            yield from _message_lines(nested, inner)
    seen = set()
    for field in message.fields:
        group = field.containing_oneof
        if group is None:
            yield inner + _field_line(field)
        elif group.name not in seen:
            seen.add(group.name)
            yield f"{inner}oneof {group.name} {{"
            yield from (f"{inner}  {_field_line(member)}" for member in group.fields)
            yield f"{inner}}}"
    yield f"{indent}}}"


def _http_option(service: str, method: str) -> str:
    """The annotation of a method as the official client calls it over HTTP; empty when it does not."""
    folder = "schema_service" if service == "SchemaService" else service.lower()
    module = importlib.import_module(f"google.pubsub_v1.services.{folder}.transports.rest_base")
    transport = getattr(module, f"_Base{service}RestTransport")
    options = getattr(getattr(transport, f"_Base{method}"), "_get_http_options", None)
    if options is None:
        return ""
    return http_option(options())


def http_option(rules: list[dict[str, str]]) -> str:
    """Rules (method, uri, body) as the text of an option: the first, and the others as further ways."""

    def text(rule: dict[str, str], indent: str) -> list[str]:
        body = [f'{indent}body: "{rule["body"]}"'] if "body" in rule else []
        return [f'{indent}{rule["method"]}: "{rule["uri"]}"', *body]

    lines = text(rules[0], " " * 6)
    for rule in rules[1:]:
        lines += ["      additional_bindings {", *text(rule, " " * 8), "      }"]
    return "\n".join(["    option (google.api.http) = {", *lines, "    };"])


def interface_text(stem: str) -> str:
    """The text of google/pubsub/v1/{stem}.proto as the installed official package defines it."""
    from google.pubsub_v1 import types

    file = {"pubsub": types.Topic, "schema": types.Schema}[stem].pb().DESCRIPTOR.file
    lines = [
        "// The public interface of Pub/Sub: names, numbers and types, nothing else.",
        "// Written by tools/protos.py; do not edit.",
        "",
        'syntax = "proto3";',
        "",
        f"package {PACKAGE};",
        "",
        'import "google/api/annotations.proto";',
        *(f'import "google/protobuf/{name}.proto";' for name in IMPORTS[stem]),
        *(['import "google/pubsub/v1/schema.proto";'] if stem == "pubsub" else []),
    ]
    for service, methods in SERVICES[stem].items():
        lines += ["", f"service {service} {{"]
        for name, request, response in methods:
            option = _http_option(service, name)
            lines += [f"  rpc {name}({request}) returns ({response})" + (f" {{\n{option}\n  }}" if option else ";")]
        lines += ["}"]
    for enum in file.enum_types_by_name.values():
        lines += ["", *_enum_lines(enum, "")]
    for message in file.message_types_by_name.values():
        lines += ["", *_message_lines(message)]
    return "\n".join(lines) + "\n"


def import_interface() -> None:
    """Write the interface files from the installed official package."""
    folder = PROTO / "google" / "pubsub" / "v1"
    folder.mkdir(parents=True, exist_ok=True)
    for stem in SERVICES:
        (folder / f"{stem}.proto").write_text(interface_text(stem))


def compiled() -> dict[Path, bytes]:
    """What is committed of all sources and what they import: the serialised FileDescriptorSet, in a stable order and
    without comments, and a stub for each package.
    """
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from grpc_tools import protoc

    sources = sorted(str(path.relative_to(PROTO)) for path in PROTO.rglob("*.proto"))
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "set"
        well_known = importlib.resources.files("grpc_tools") / "_proto"
        code = protoc.main(
            ["protoc", f"-I{PROTO}", f"-I{well_known}", "--include_imports", f"--descriptor_set_out={target}",
             f"--pyi_out={folder}", *sources]
        )  # fmt: skip
        if code:
            raise SystemExit(code)
        # protoc lists imports before importers; serialising again makes the bytes independent of its version.
        found = FileDescriptorSet.FromString(target.read_bytes())
        packages = {file.name.removesuffix(".proto"): file.package.replace(".", "_") for file in found.file}
        texts: dict[str, str] = {}
        for source in (one.removesuffix(".proto") for one in sources):
            stub = (Path(folder) / f"{source}_pb2.pyi").read_text()
            texts[packages[source]] = texts.get(packages[source], "") + _stub(stub, packages[source], packages)
    well_known_files = [name for name, package in packages.items() if package == "google_protobuf"]
    texts["google_protobuf"] = "".join(f"from {one.replace('/', '.')}_pb2 import *\n" for one in well_known_files)
    texts["__init__"] = ""
    stubs = {WIRE / "stubs" / f"{name}.pyi": text.encode() for name, text in texts.items()}
    return {WIRE / "descriptors.binpb": found.SerializeToString(deterministic=True), **stubs}


def _stub(text: str, package: str, packages: dict[str, str]) -> str:
    """The stub of one file as part of that of its package, without what nobody reads; enums also take numbers."""
    for file, other in packages.items():
        folder, _, name = file.rpartition("/")
        line = f"from {folder.replace('/', '.')} import {name}_pb2 as _{name}_pb2\n"
        if line not in text or other == "google_protobuf":
            continue
        text = text.replace(line, "" if other == package else f"from syncpoint.wire.protobuf.stubs import {other}\n")
        text = text.replace(f"_{name}_pb2.", "" if other == package else f"{other}.")
    text = re.sub(r" *(__slots__ = |\w+_FIELD_NUMBER: |DESCRIPTOR: ).*\n|^\n", "", text, flags=re.M)
    return re.sub(r"_Union\[([\w.]+), str\]", r"_Union[\1, int, str]", text)


def main(command: str) -> int:
    """Run one of the commands; returns the exit status."""
    if command == "compile":
        for path, data in compiled().items():
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(data)
    elif command == "import":
        import_interface()
    elif command == "check":
        old = [path for path, data in compiled().items() if not path.exists() or path.read_bytes() != data]
        for path in old:
            print(f"{path.relative_to(ROOT)} is older than its sources: run `python tools/protos.py compile`")
        return 1 if old else 0
    else:
        print(__doc__)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) == 2 else ""))
