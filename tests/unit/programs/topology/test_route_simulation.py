"""The simulation runs the code of the routers, and its plot is well made."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Sequence

import pytest

from syncpoint.broker.router.rendezvous import mix, order
from syncpoint.programs.cli.simulate import drawn
from syncpoint.programs.topology.route_plot import ticks

np = pytest.importorskip("numpy")

from syncpoint.broker.router.assign import Item, assign  # noqa: E402
from syncpoint.programs.topology.route_simulation import Scenario, _Orders, mixed, simulate  # noqa: E402

SMALL = Scenario(forwarders=30, clients=2_000, epsilons=(0.05, 0.25, 1.0))


def test_many_numbers_are_mixed_as_one_is() -> None:
    values = [0, 1, 2**63, 2**64 - 1, 0x0123456789ABCDEF]
    assert mixed(np.array(values, dtype=np.uint64)).tolist() == [mix(value) for value in values]


def test_orders_are_those_of_rendezvous() -> None:
    names = [f"forwarder-{number}" for number in range(12)]
    orders = _Orders(50, 12)
    for client in range(50):
        expected = [names.index(name) for name in order(client, names)]
        assert list(orders.without(set())(client)) == expected
        assert list(orders.without({3, 7})(client)) == [bin for bin in expected if bin not in (3, 7)]


def test_it_places_as_routers_do() -> None:
    """Equal clients, bounded: the same homes as `assign` finds."""
    scenario = Scenario(forwarders=10, clients=300, skew=0.0, share=1.0, epsilons=(0.05,))
    names = [f"forwarder-{number}" for number in range(10)]
    plan = assign([Item(key, 1.0, 1, tuple(names)) for key in range(300)], dict.fromkeys(names, 1.0), {}, e=0.05)
    row = simulate(scenario).rows[0]
    assert row.highest == pytest.approx(plan.worst / 30)


def test_the_bound_is_kept_and_what_may_stay_stays() -> None:
    result = simulate(SMALL)
    assert [row.e for row in result.rows] == [0.05, 0.25, 1.0, None]
    assert result.heaviest <= SMALL.share + 1e-9
    for row in result.rows:
        assert row.highest <= 1 + (row.e or 10) + 1e-6
        assert row.gone <= row.gone_anew + 1e-9
        assert row.come <= row.come_anew + 1e-9
        assert row.churn <= row.churn_anew + 1e-9
    assert result.rows[0].come > result.rows[1].come
    assert result == simulate(SMALL)


def test_the_plot() -> None:
    text = drawn(simulate(SMALL))
    root = ET.fromstring(text)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    words = [one.text for one in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "Uniformity against movement" in words
    numbers = [
        float(number)
        for line in root.iter("{http://www.w3.org/2000/svg}polyline")
        for point in line.attrib["points"].split()
        for number in point.split(",")
    ]
    assert min(numbers) >= 0
    assert max(numbers) <= 1160


@pytest.mark.parametrize(
    ("high", "expected"), [(0.78, [0, 0.2, 0.4, 0.6, 0.8]), (0, [0, 1]), (6, [0, 1, 2, 3, 4, 5, 6])]
)
def test_ticks(high: float, expected: Sequence[float]) -> None:
    assert ticks(high) == pytest.approx(list(expected))
