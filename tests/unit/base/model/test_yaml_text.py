"""YAML with bounds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

import syncpoint
from syncpoint.base.model import yaml_text
from syncpoint.base.model.yaml_text import DEPTH_MAX, load_yaml, load_yaml_documents


def nested(levels: int) -> str:
    return "[" * levels + "]" * levels


def test_what_people_write_is_read() -> None:
    assert load_yaml("a: &x {b: 1}\nc: *x\nd: {<<: *x, e: 2}\n") == {
        "a": {"b": 1},
        "c": {"b": 1},
        "d": {"b": 1, "e": 2},
    }
    assert list(load_yaml_documents("a: 1\n---\nb: 2\n")) == [{"a": 1}, {"b": 2}]
    assert load_yaml("") is None
    assert load_yaml(nested(DEPTH_MAX)) is not None


@pytest.mark.parametrize("text", [nested(DEPTH_MAX + 1), nested(20_000), "- " * 5_000 + "x", "a: &x [*x]"])
def test_what_is_nested_too_deeply_or_in_itself_is_a_mistake_of_the_file(text: str) -> None:
    with pytest.raises(yaml.YAMLError, match=r"nested deeper|within what it stands for"):
        load_yaml(text)


def test_aliases_that_multiply_are_refused() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    with pytest.raises(yaml.YAMLError, match="more than"):
        load_yaml("\n".join(lines))


def test_there_is_no_other_loader() -> None:
    source = Path(syncpoint.__file__).parent
    found = [
        path.relative_to(source).as_posix()
        for path in source.rglob("*.py")
        if path != Path(yaml_text.__file__) and re.search(r"yaml\.(\w*_)?load(_all)?\(|Loader\b", path.read_text())
    ]
    assert not [one for one in found if "yaml" in (source / one).read_text()]


@pytest.mark.parametrize("text", ["a: 1\na: 2", "x:\n  - {b: 1, c: 2, b: 3}", "'a': 1\na: 2", "1: x\n1: y"])
def test_a_key_given_twice_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(yaml.YAMLError, match=r"is given twice\s+in .*line \d"):
        load_yaml(text)


def test_a_key_may_stand_in_several_places() -> None:
    text = "base: &base {a: 1}\none: {a: 2, <<: *base}\ntwo: {a: 3}"
    assert load_yaml(text) == {"base": {"a": 1}, "one": {"a": 2}, "two": {"a": 3}}
