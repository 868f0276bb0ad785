"""What a collector reads of a running process."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Callable

from prometheus_client.parser import text_string_to_metric_families

Row = tuple[str, ...]


def page(address: str, path: str = "/metrics") -> str:
    """The text of a page."""
    with urllib.request.urlopen(f"http://{address}{path}", timeout=30) as answer:
        assert answer.headers["content-type"].startswith("text/plain")
        text: str = answer.read().decode()
    return text


def scraped(address: str, name: str) -> dict[Row, float]:
    """The samples of one name, by the values of their labels, in the order of the names of these."""
    found = text_string_to_metric_families(page(address))
    return {
        tuple(label for _, label in sorted(one.labels.items())): one.value
        for family in found
        for one in family.samples
        if one.name == name
    }


def soon(look: Callable[[], object], expected: object) -> None:
    """It becomes so: texts are kept for a second, surveys of backlogs for two, on a machine that has time for them."""
    begun, looks = time.monotonic(), 0
    while (found := look()) != expected:
        looks += 1
        took = time.monotonic() - begun
        assert took < 120, f"{found} and not {expected} in {looks} looks over {took:.0f} s"
        time.sleep(0.5)


def within(address: str, name: str, expected: dict[Row, float]) -> None:
    """Soon a name shows exactly this."""
    soon(lambda: scraped(address, name), expected)
