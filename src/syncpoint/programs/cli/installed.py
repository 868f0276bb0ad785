"""Where this program was installed from, so that an advice can be copied."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path
from urllib.parse import unquote, urlsplit

UNKNOWN = "FOLDER"


def folder_of() -> str:
    """The folder of the sources that pip installed from; FOLDER where it is not known."""
    try:
        text = metadata.distribution("syncpoint").read_text("direct_url.json")
        url = urlsplit(json.loads(text or "{}").get("url", ""))
    except (metadata.PackageNotFoundError, ValueError):
        return UNKNOWN
    folder = unquote(url.path)
    return folder if url.scheme == "file" and Path(folder).is_dir() else UNKNOWN
