"""The console in Chromium: a page that is looked at, what its browser complains of, and what axe finds wrong with it.

Needs chromium, and axe-core in console/node_modules (`tools/console.py build` installs it); modules that use it have
`MARKS`, and are skipped without.
"""

from __future__ import annotations

import base64
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

sync_api = pytest.importorskip("playwright.sync_api")

CHROMIUM = shutil.which("chromium")
AXE = Path(__file__).parents[2] / "console" / "node_modules" / "axe-core" / "axe.min.js"
MARKS = [
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed: make chromium"),
    pytest.mark.skipif(not AXE.exists(), reason="axe-core is not installed: tools/console.py build"),
    pytest.mark.timeout(600),
]
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
    " --disable-component-update --disable-sync"
)
PATIENCE_MS = 60_000
Found = TypeVar("Found")


@contextmanager
def chromium(*flags: str) -> Iterator[Any]:
    """A browser."""
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=CHROMIUM, args=[*FLAGS.split(), *flags], timeout=PATIENCE_MS
        )
        yield started
        started.close()


def trusting(certificate: Path) -> str:
    """The flag with which Chromium takes this very certificate, and no other one that it does not know."""
    key = x509.load_pem_x509_certificate(certificate.read_bytes()).public_key()
    digest = hashes.Hash(hashes.SHA256())
    digest.update(key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo))
    return f"--ignore-certificate-errors-spki-list={base64.b64encode(digest.finalize()).decode()}"


def apart(do: Callable[[], Found]) -> Found:
    """In a thread: the one that drives a browser has a loop that runs, so blocking clients cannot have theirs."""
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(do).result()


class Looked:
    """A page that is looked at, and what its browser complained of."""

    def __init__(self, browser: Any, base: str, **how: Any) -> None:
        self.base, self.page = base, browser.new_page(**how)
        self.page.set_default_timeout(PATIENCE_MS)
        self.complaints: list[str] = []
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("console", lambda said: said.type == "error" and self.complaints.append(said.text))

    def go(self, path: str, title: str) -> Any:
        self.page.goto(self.base + path)
        self.page.get_by_role("heading", level=1, name=title, exact=True).wait_for()
        self.page.get_by_text("Loading …").first.wait_for(state="hidden")
        return self.page

    def fits(self, width: int) -> bool:
        """Whether the page is no wider than a window of this width, once its charts have been drawn for that."""
        self.page.set_viewport_size({"width": width, "height": 800})
        root = "document.documentElement"
        return self.becomes(f"{root}.scrollWidth <= {root}.clientWidth", PATIENCE_MS / 4)

    def becomes(self, expression: str, patience_ms: float) -> bool:
        """Whether an expression becomes true in time. Each look is one of the debugger's, which the page's own policy
        does not forbid; an expression that the page itself watched would be.
        """
        end = time.monotonic() + patience_ms / 1000
        while not self.page.evaluate(expression):
            if time.monotonic() >= end:
                return False
            self.page.wait_for_timeout(20)
        return True

    def violations(self) -> list[str]:
        """What axe finds wrong, and in dark colors what of the contrast, which is all that they change."""
        if not self.page.evaluate("'axe' in window"):
            self.page.evaluate(AXE.read_text() + ";0")
        wrong = self._found_by_axe("{resultTypes: ['violations']}")
        self.page.emulate_media(color_scheme="dark", reduced_motion="reduce")  # colors change at once
        wrong += self._found_by_axe("{resultTypes: ['violations'], runOnly: ['color-contrast']}")
        self.page.emulate_media(color_scheme="light", reduced_motion="no-preference")
        return wrong

    def _found_by_axe(self, options: str) -> list[str]:
        found = self.page.evaluate(f"axe.run(document, {options})")
        return [f"{one['id']}: {node['html'][:160]}" for one in found["violations"] for node in one["nodes"]]

    def token(self, token: str) -> None:
        """Show who one is."""
        self.page.get_by_label("Token").fill(token)
        self.page.get_by_role("button", name="Sign in").click()
        self.page.get_by_label("Pages").wait_for(state="attached")

    def move(self, path: str, title: str) -> Any:
        """To another page without loading the program anew, which would forget the token."""
        where = self.base.partition("/console")[0] + "/console" + path
        self.page.evaluate(
            "where => { history.pushState({}, '', where); dispatchEvent(new PopStateEvent('popstate')); }", where
        )
        self.page.get_by_role("heading", level=1, name=title, exact=True).wait_for()
        self.page.get_by_text("Loading …").first.wait_for(state="hidden")
        return self.page

    def is_clean(self, name: str = "") -> None:
        """Of what is shown now: nothing wrong by axe's rules, and room at 400 pixels and at twice the size."""
        wrong = self.violations()
        assert not wrong, (name, wrong)
        for width in (400, 640):  # 1280 pixels at 200 % are 640 of CSS
            assert self.fits(width), (name, width)
        self.page.set_viewport_size({"width": 1280, "height": 800})
