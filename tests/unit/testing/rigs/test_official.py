"""The helpers around the official client fail when they should: a test that cannot fail proves nothing."""

from __future__ import annotations

import os

import grpc
import pytest

from syncpoint.testing.rigs.official import emulator_host, eventually, refused


class Failure(grpc.RpcError):
    def __init__(self, code, text, trailers=()):
        self._code, self._text, self._trailers = code, text, trailers

    def code(self):
        return self._code

    def details(self):
        return self._text

    def trailing_metadata(self):
        return self._trailers


def refuse(code=grpc.StatusCode.NOT_FOUND, text="Resource not found (resource=x).", trailers=()):
    raise Failure(code, text, trailers)


def test_the_due_refusal_passes_and_can_be_read():
    with refused("NOT_FOUND", "Resource", "x") as caught:
        refuse(trailers=(("key", b"value"),))
    assert caught.text == "Resource not found (resource=x)."
    assert caught.trailer("key") == b"value"
    assert caught.trailer("other") is None


def test_a_call_that_is_accepted_fails_the_test():
    with pytest.raises(AssertionError, match="accepted, though NOT_FOUND was due"), refused("NOT_FOUND"):
        pass


def test_another_code_fails_the_test():
    with pytest.raises(AssertionError, match=r"NOT_FOUND .* instead of ALREADY_EXISTS"), refused("ALREADY_EXISTS"):
        refuse()


def test_a_text_that_does_not_name_the_field_fails_the_test():
    with pytest.raises(AssertionError, match="does not name 'topic'"), refused("NOT_FOUND", "topic"):
        refuse()


def test_other_errors_pass_through():
    with pytest.raises(ZeroDivisionError), refused("NOT_FOUND"):
        raise ZeroDivisionError


def test_eventually_returns_the_value_and_gives_up_in_time():
    values = iter([0, "", None, 7])
    assert eventually(lambda: next(values)) == 7
    with pytest.raises(AssertionError, match=r"within 0\.05 s: the impossible"):
        eventually(lambda: False, within=0.05, what="the impossible")


def test_the_environment_is_as_before(monkeypatch):
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", "before:1")
    with emulator_host("during:2"):
        assert os.environ["PUBSUB_EMULATOR_HOST"] == "during:2"
    assert os.environ["PUBSUB_EMULATOR_HOST"] == "before:1"
    monkeypatch.delenv("PUBSUB_EMULATOR_HOST")
    with pytest.raises(ZeroDivisionError), emulator_host("during:2"):
        raise ZeroDivisionError
    assert "PUBSUB_EMULATOR_HOST" not in os.environ
