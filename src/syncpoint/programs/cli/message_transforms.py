"""Message transforms on the command line: read from a file, as `gcloud` reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

file_option = click.option(
    "--message-transforms-file",
    "transforms_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Message transforms: a list in YAML or JSON (docs/api.md).",
)
clear_option = click.option(
    "--clear-message-transforms", "clear_transforms", is_flag=True, help="Remove all message transforms."
)


def read_transforms(path: Path | None) -> list[Any]:
    """The MessageTransforms of a file; none without one. Raises `click.UsageError` that names what is wrong."""
    if path is None:
        return []
    import yaml
    from google.protobuf import json_format

    from syncpoint.base.model.yaml_text import load_yaml
    from syncpoint.wire.protobuf.messages import pubsub

    try:
        content = load_yaml(path.read_text())
        if isinstance(content, dict):
            content = content.get("messageTransforms", [content])
        if not isinstance(content, list):
            raise click.UsageError(f"{path}: expected a list of transforms.")
        return [json_format.ParseDict(one, pubsub.MessageTransform()) for one in content]
    except (yaml.YAMLError, json_format.ParseError, UnicodeDecodeError) as error:
        raise click.UsageError(f"{path}: {error}") from None


def changed_transforms(path: Path | None, clear: bool) -> list[Any] | None:
    """What an update makes of them; None: they stay."""
    if path is not None and clear:
        raise click.UsageError("--message-transforms-file and --clear-message-transforms cannot be combined.")
    return read_transforms(path) if path is not None or clear else None
