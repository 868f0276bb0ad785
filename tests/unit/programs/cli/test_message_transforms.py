"""Files of message transforms, as `gcloud` reads them."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from syncpoint.programs.cli.message_transforms import changed_transforms, read_transforms

UDF = "javascriptUdf: {functionName: f, code: 'function f(m) { return m; }'}"


@pytest.mark.parametrize("text", [f"- {UDF}\n", f"{UDF}\n", f"messageTransforms:\n- {UDF}\n"])
def test_a_list_one_transform_or_both_in_a_field_are_read(tmp_path: Path, text: str) -> None:
    path = tmp_path / "transforms.yaml"
    path.write_text(text)
    (found,) = read_transforms(path)
    assert found.javascript_udf.function_name == "f"


@pytest.mark.parametrize("text", ["- nonsense: 1\n", "text\n", "{"])
def test_what_is_no_transform_is_refused_with_the_name_of_the_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "transforms.yaml"
    path.write_text(text)
    with pytest.raises(click.UsageError, match=r"transforms\.yaml"):
        read_transforms(path)


def test_an_update_keeps_changes_or_clears_them(tmp_path: Path) -> None:
    path = tmp_path / "transforms.yaml"
    path.write_text(f"- {UDF}\n")
    assert changed_transforms(None, False) is None
    assert changed_transforms(None, True) == []
    assert len(changed_transforms(path, False) or []) == 1
    with pytest.raises(click.UsageError, match="cannot be combined"):
        changed_transforms(path, True)
