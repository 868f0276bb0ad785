"""Ack ids that name their site."""

from __future__ import annotations

import pytest

from syncpoint.base.model.errors import Code, InvalidArgument, SyncpointError
from syncpoint.front.gateway.ack_tags import TAG_BYTES, merged_error, tag_of, tagged_error, tags_of
from syncpoint.wire.protobuf.status import ack_failure, ack_outcomes


def test_a_tag_depends_on_the_name_alone() -> None:
    assert tags_of(["eu", "us"]) == {name: tag_of(name) for name in ("us", "eu")}
    assert len(tag_of("eu")) == TAG_BYTES
    assert tag_of("eu").endswith(b".")


def test_two_sites_with_one_tag_are_refused() -> None:
    seen: dict[bytes, str] = {}
    for number in range(100_000):
        name = f"site-{number}"
        other = seen.setdefault(tag_of(name), name)
        if other != name:
            with pytest.raises(InvalidArgument, match="same tag"):
                tags_of([other, name])
            return
    raise AssertionError("no two names of 100,000 have the same tag of 18 bits")


def test_errors_name_ack_ids_as_the_client_has_them() -> None:
    error = tagged_error(ack_failure(["a"], unknown=["b"]), b"abc.")
    assert ack_outcomes(error) == {
        "abc.a": "PERMANENT_FAILURE_INVALID_ACK_ID",
        "abc.b": "TRANSIENT_FAILURE_INVALID_ACK_ID",
    }
    plain = SyncpointError(Code.NOT_FOUND, "no such subscription")
    assert tagged_error(plain, b"abc.") is plain


def test_errors_of_several_sites_are_one() -> None:
    one, two = ack_failure(["a"]), ack_failure(["a"])
    assert set(ack_outcomes(merged_error({b"abc.": one, b"xyz.": two}))) == {"abc.a", "xyz.a"}
    plain = SyncpointError(Code.NOT_FOUND, "no such subscription")
    assert merged_error({b"abc.": one, b"xyz.": plain}) is plain
