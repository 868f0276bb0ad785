"""The documentation, as it came with this version: a wheel has its pages beside the command line (`setup.py` copies
them), a clone has them in `docs`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import syncpoint

_PACKAGE: Final = Path(syncpoint.__file__).parent
INSTALLED: Final = _PACKAGE / "programs" / "cli" / "pages"
CLONE: Final = _PACKAGE.parents[1] / "docs"


def pages() -> Mapping[str, Path]:
    """The files of all pages by their names, such as `api` and `operations/alerts`."""
    folder = INSTALLED if INSTALLED.is_dir() else CLONE
    found = {str(path.relative_to(folder).with_suffix("")): path for path in sorted(folder.rglob("*.md"))}
    return {name: path for name, path in found.items() if not name.startswith("history/")}


def section(text: str, anchor: str) -> str:
    """The section of a page that a link with this anchor leads to, without its heading; "": it has none."""
    found: list[str] = []
    depth = 0
    for line in text.splitlines():
        heading = re.match(r"(#+) +(.*)", line)
        if heading is not None:
            if depth and len(heading[1]) <= depth:
                break
            if not depth and re.sub(r"[^\w -]", "", heading[2].lower()).replace(" ", "-") == anchor:
                depth = len(heading[1])
                continue
        if depth:
            found.append(line)
    return "\n".join(found).strip()
