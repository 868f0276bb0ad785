"""The built program of the console: the files that browsers load, and what they must not do with them.

Place: under `console_pages`. The files are built from `console/` at the top of the repository and shipped inside the
package, so that no Node is needed to run or install a server.
Promise: nothing is read before the first request. Files whose names have a hash of their content are kept by browsers
for a year; the page that names them is asked for each time. No page of another site may show it in a frame, and no
script or style runs that is not one of these files.
"""

from __future__ import annotations

import gzip
from functools import cached_property
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "font-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
"""Content-Security-Policy: also what would make markup of a text (`innerHTML`) is an error in the browser."""

HEADERS: Final = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}
_KINDS: Final = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".json": "application/json",
}
_KEPT: Final = "public, max-age=31536000, immutable"
_ASKED: Final = "no-cache"
INDEX: Final = "index.html"


def is_built() -> bool:
    """Whether this installation has the files, without reading them."""
    return (_folder() / INDEX).is_file()


def _folder() -> Traversable:
    return files("syncpoint.watch.console") / "static"


class BundleFile(NamedTuple):
    """A file as it is sent."""

    body: bytes
    packed: bytes
    kind: str


class Bundle:
    """The built files of the console."""

    @cached_property
    def files(self) -> dict[str, BundleFile]:
        """By their paths below `/console/`."""
        return dict(_read(_folder(), ""))

    def answer(self, request: Request, path: str) -> Response | None:
        """A file as the browser takes it; None: there is no such file."""
        found = self.files.get(path)
        if found is None:
            return None
        headers = {**HEADERS, "cache-control": _KEPT if path.startswith("assets/") else _ASKED}
        headers["vary"] = "accept-encoding"
        packed = "gzip" in request.headers.get("accept-encoding", "")
        if packed:
            headers["content-encoding"] = "gzip"
        return Response(found.packed if packed else found.body, headers=headers, media_type=found.kind)


def _read(folder: Traversable, prefix: str) -> list[tuple[str, BundleFile]]:
    found: list[tuple[str, BundleFile]] = []
    for one in folder.iterdir():
        if one.is_dir():
            found += _read(one, f"{prefix}{one.name}/")
        elif (kind := _KINDS.get(one.name[one.name.rfind(".") :])) is not None:
            body = one.read_bytes()
            found.append((prefix + one.name, BundleFile(body, gzip.compress(body, 9, mtime=0), kind)))
    return found
