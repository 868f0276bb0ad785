"""`syncpoint federation keys`: what it shows, moves, and refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from syncpoint.base.model.key_homes import SlotHome, slot_of
from syncpoint.programs.cli.main import cli
from syncpoint.programs.federation import servers as servers_module
from syncpoint.programs.federation.state import StateFolder
from tests.unit.programs.federation.owned_keys.test_key_move import KeysInMemory

FILE = """\
version: 1
clusters: {a: {endpoint: "a:1"}, b: {endpoint: "b:1"}}
namespaces:
  shop: {clusters: [a, b], acks: true, keys: {weights: {a: 3}, takeover: 30s}}
"""


class InMemory(KeysInMemory):
    def __enter__(self) -> InMemory:
        return self

    def __exit__(self, *_: object) -> None:
        return None


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "federation.yaml"
    path.write_text(FILE)
    return path


@pytest.fixture
def sites(monkeypatch: pytest.MonkeyPatch) -> InMemory:
    made = InMemory()
    monkeypatch.setattr(servers_module, "Servers", lambda *_, **__: made)
    return made


def keys(*words: str) -> Result:
    return CliRunner().invoke(cli, ["federation", "keys", *words], prog_name="syncpoint")


def test_shares_are_those_of_the_file_or_as_given(sites: InMemory, file: Path) -> None:
    done = keys("balance", "billing", str(file))
    assert done.exit_code == 0, done.output
    assert "64 of 256 slots of [billing] have moved (generation 6)." in done.output
    assert "a: 192 slots; b: 64 slots" in done.output
    assert "a: 256 slots" in keys("balance", "billing", str(file), "--weight", "b=0").output
    assert "are where they should be" in keys("balance", "billing", str(file), "--weight", "b=0").output
    for wrong, why in (("b", "is not SITE=WEIGHT"), ("b=x", "is not SITE=WEIGHT"), ("c=1", "has a site 'c'")):
        refused = keys("balance", "billing", str(file), "--weight", wrong)
        assert (refused.exit_code, why in refused.output) == (1, True), refused.output
    nobody = keys("balance", "billing", str(file), "--weight", "a=0", "--weight", "b=0")
    assert "no site has a weight above 0" in nobody.output


def test_a_key_moves_with_its_slot_and_a_state_is_shown(sites: InMemory, file: Path) -> None:
    slot = slot_of(b"customer-17")
    owner = sites.slots["a"][slot].home
    other = "a" if owner == "b" else "b"
    assert "1 of 256 slots" in keys("move", "billing", other, str(file), "--key", "customer-17").output
    shown = keys("show", "billing", str(file), "--key", "customer-17")
    assert [str(slot), other, "6", "delivered"] == shown.output.split()[-4:]
    held = list(sites.slots["a"])
    held[0], held[1] = SlotHome(9, "(moving) x"), SlotHome(9, "b", "a")
    sites.slots["a"] = held
    text = keys("show", "billing", str(file)).output
    assert "held: a move runs, or broke off; not known yet at b" in text
    assert "taken from a, which may not know" in text
    sites.away = {"b"}
    assert "b does not answer: away" in keys("show", "billing", str(file)).output


@pytest.mark.parametrize("slots", ["7-300", "9-3", "x", "-1"])
def test_slots_that_do_not_exist_are_refused(sites: InMemory, file: Path, slots: str) -> None:
    refused = keys("move", "billing", "a", str(file), f"--slots={slots}")
    assert (refused.exit_code, "is not FIRST-LAST" in refused.output) == (1, True)


def test_a_move_that_is_refused_names_the_reason(sites: InMemory, file: Path) -> None:
    sites.away = {"a"}
    refused = keys("move", "billing", "b", str(file))
    assert (refused.exit_code, "a does not answer: what it delivers now is unknown" in refused.output) == (1, True)
    file.write_text(FILE.replace("acks: true", "acks: false").replace(", keys: {weights: {a: 3}, takeover: 30s}", ""))
    assert "exchanges acknowledgements" in keys("show", "billing", str(file)).output
    file.write_text(FILE.replace("acks: true", "acks: false"))
    assert "needs `acks: true`" in keys("show", "billing", str(file)).output


def test_takeovers_are_listed_with_what_came_twice(file: Path) -> None:
    record: dict[str, Any] = {
        "subscription": "billing", "lost": "a", "slots": 128, "at": 1e9, "back_at": 0.0, "known": {}, "twice": None,
        "lent": 0, "ids": [],
    }  # fmt: skip
    back = record | {"back_at": 1e9 + 60, "twice": 1200, "lent": 3, "ids": ["1"]}
    state = StateFolder(file.parent / "federation-state")
    state.say_takeovers([record, back, back | {"twice": None, "lent": 0}])
    lines = keys("takeovers", str(file)).output.splitlines()
    assert [one.rpartition("   ")[2] for one in lines[-3:]] == [
        "known once it is back",
        "1,200, and up to 3 more",
        "unknown",
    ]
    assert "2001-09-09T01:47:40Z" in lines[-2]
