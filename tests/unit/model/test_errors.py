"""Errors carry the code and the text that clients match on."""

from __future__ import annotations

import pickle

import grpc
import pytest

from syncpoint.model import errors
from syncpoint.model.errors import Code


def test_codes_have_the_numbers_of_grpc() -> None:
    assert {code.name: code.value for code in Code} == {code.name: code.value[0] for code in grpc.StatusCode}


def test_texts_are_those_of_pubsub() -> None:
    assert errors.NotFound("projects/p/topics/t").message == "Resource not found (resource=projects/p/topics/t)."
    assert errors.AlreadyExists("x").message == "Resource already exists in the project (resource=x)."
    assert errors.InvalidArgument("", "No messages to publish").message == "No messages to publish"
    assert errors.InvalidArgument("filter", "bad").message == "filter: bad"
    assert "/google.pubsub.v1.Publisher/Nope" in errors.Unimplemented("/google.pubsub.v1.Publisher/Nope").message


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.FailedPrecondition("x"), Code.FAILED_PRECONDITION),
        (errors.ResourceExhausted("x"), Code.RESOURCE_EXHAUSTED),
        (errors.Unavailable("x"), Code.UNAVAILABLE),
        (errors.OutOfRange("x"), Code.OUT_OF_RANGE),
        (errors.Aborted("x"), Code.ABORTED),
        (errors.Internal("x"), Code.INTERNAL),
        (errors.DeadlineExceeded("x"), Code.DEADLINE_EXCEEDED),
        (errors.Cancelled("x"), Code.CANCELLED),
        (errors.PermissionDenied("x"), Code.PERMISSION_DENIED),
        (errors.Unauthenticated("x"), Code.UNAUTHENTICATED),
        (errors.DataLoss("x"), Code.DATA_LOSS),
        (errors.Unimplemented("x"), Code.UNIMPLEMENTED),
    ],
)
def test_every_kind_has_its_code(error: errors.SyncpointError, code: Code) -> None:
    assert error.code is code
    assert str(error).startswith(code.name)
    assert error.details == ()


def test_errors_survive_pickling() -> None:
    error = pickle.loads(pickle.dumps(errors.InvalidArgument("name", "is bad", [b"any"])))
    assert isinstance(error, errors.InvalidArgument)
    assert (error.code, error.message, error.details, error.field) == (
        Code.INVALID_ARGUMENT,
        "name: is bad",
        (b"any",),
        "name",
    )
