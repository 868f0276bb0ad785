"""The table of columns agrees with the interface and with the kernel."""

from __future__ import annotations

import pytest

from syncpoint.base.kernel.columns import Gathering
from syncpoint.base.model.errors import InvalidArgument
from syncpoint.broker.pipeline.columns import COLUMNS, DATA, OFFSET, named
from syncpoint.wire.protobuf.messages import pipeline


def test_numbers_and_names_are_the_interfaces() -> None:
    for number, column in COLUMNS.items():
        assert pipeline.Column.Name(number) == column.name.upper()
    with pytest.raises(KeyError):
        pipeline.Column.Name(len(COLUMNS) + 1)


@pytest.mark.parametrize("number", COLUMNS)
def test_the_kernel_makes_as_many_buffers_and_nodes(number: int) -> None:
    _, nodes, lengths, _ = Gathering((number,)).finish()
    assert len(nodes) == COLUMNS[number].nodes
    assert len(lengths) == len(COLUMNS[number].buffers)
    empty = {index for index, length in enumerate(lengths) if not length}
    assert empty >= {index for index, name in enumerate(COLUMNS[number].buffers) if name == "valid"}


def test_named() -> None:
    assert [column.name for column in named([DATA, OFFSET])] == ["data", "offset"]
    for wrong, text in (([0], r"columns\[0\]: 0 is not a column"), ([4, 4], r"columns\[1\]: data is given twice")):
        with pytest.raises(InvalidArgument, match=text):
            named(wrong)
