"""The keyrings and messages of this example: four formats, each encrypted with our key, and one message that was
altered.
"""

from __future__ import annotations

import base64
import io
import json
import os
import struct
from pathlib import Path

import fastavro

from syncpoint.programs.federation.steps.payload_keys import KeyringPlace

TOPIC = "projects/partners/topics/orders"


def prepare(folder: Path) -> None:
    """Write both keyrings, with fresh keys, and `input.jsonl`."""
    _keyring(folder / "ours.keys.json", "ours-1", "AES-256-GCM", 32)
    _keyring(folder / "partner.keys.json", "partner-2026", "ChaCha20-Poly1305", 32)
    ours = KeyringPlace(file=str(folder / "ours.keys.json")).load()
    legacy = io.BytesIO()
    schema = fastavro.parse_schema(json.loads((folder / "legacy.avsc").read_text()))
    fastavro.schemaless_writer(legacy, schema, {"order_id": 7, "total": 19.5, "currency": "CHF"})
    orders = {
        "csv": b"7;19.5;CHF",
        "json": b'{"id": 7, "sum": {"amount": 19.5, "currency": "CHF"}, "note": "not for the partner"}',
        "avro": legacy.getvalue(),
        "proto": b"\x08\x07\x11" + struct.pack("<d", 19.5) + b"\x1a\x03CHF",
    }
    with (folder / "input.jsonl").open("w") as out:
        for number, (name, plaintext) in enumerate([*orders.items(), ("csv", b"8;a lot;CHF"), ("csv", b"9;1;EUR")]):
            data, attributes = ours.encrypt("ours-1", plaintext)
            if plaintext.startswith(b"9"):
                data = data[:-1] + bytes([data[-1] ^ 1])  # altered on its way
            line = {"at": "eu", "topic": TOPIC, "key": "orders", "base64": base64.b64encode(data).decode()}
            line["attributes"] = {**attributes, "format": name, "n": str(number)}  # type: ignore[assignment]
            out.write(json.dumps(line) + "\n")


def _keyring(path: Path, key: str, algorithm: str, size: int) -> None:
    secret = base64.b64encode(os.urandom(size)).decode()
    path.write_text(json.dumps({key: {"algorithm": algorithm, "key": secret}}))
    path.chmod(0o600)
