"""The file of a gateway: what is taken, and what is refused, with its place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from syncpoint.base.model.errors import InvalidArgument
from syncpoint.front.gateway.gateway_file import parse

pytestmark = pytest.mark.shows("gateway")

SITES = {"eu": {"endpoint": "eu:8085"}, "us": {"endpoint": "us:8085"}}


def test_a_file_of_two_sites_and_a_dual_topic() -> None:
    found = parse({"version": 1, "sites": SITES, "dual": [{"topics": "projects/shop/topics/orders*"}]}, Path("/etc"))
    assert [one.name for one in found.sites] == ["eu", "us"]
    assert found.dual[0].answer == "degrade"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"dual": [{"topics": "projects/*/topics/orders"}]}, "dual.0.topics"),  # its projects could not be listed
        ({"dual": [{"topics": "orders"}]}, "dual.0.topics"),
        ({"dual": [{"topics": "projects/p/topics/*"}], "sites": {"eu": SITES["eu"]}}, "needs two sites"),
        ({"sites": {}}, "sites"),
        ({"color": "blue"}, "color"),
    ],
)
def test_what_is_refused_is_named(change: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        parse({"version": 1, "sites": SITES} | change, Path("/etc"))
    assert said in str(refused.value).replace("[", ".").replace("]", "")
