"""Who is fenced, by what sites declare."""

from __future__ import annotations

import pytest

from syncpoint.programs.disaster.class_duties import to_fence
from syncpoint.wire.protobuf.messages import admin

pytestmark = pytest.mark.shows("disaster-classes")


def declared(writer: str, since_s: int) -> admin.DisasterClass:
    return admin.DisasterClass(name="billing", writer=writer, since={"seconds": since_s})


@pytest.mark.parametrize(
    ("writers", "fenced"),
    [
        ({"eu": ("here", 1), "us": ("elsewhere", 2)}, []),
        ({"eu": ("here", 1), "us": ("here", 2)}, ["eu"]),
        ({"eu": ("here", 1), "us": ("recovering", 2)}, ["eu"]),
        ({"eu": ("recovering", 3), "us": ("here", 2), "ap": ("here", 1)}, ["ap", "us"]),
        ({"eu": ("here", 2), "us": ("here", 2)}, []),  # nobody knows
        ({"eu": ("here", 2), "us": ("here", 2), "ap": ("here", 1)}, []),
        ({"eu": ("here", 1)}, []),  # the other one does not answer
        ({}, []),
    ],
)
def test_the_writer_that_was_declared_last_stays(writers: dict[str, tuple[str, int]], fenced: list[str]) -> None:
    assert to_fence({site: declared(*one) for site, one in writers.items()}) == fenced
