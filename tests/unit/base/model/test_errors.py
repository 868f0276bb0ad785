"""Errors carry the code and the text that clients match on."""

from __future__ import annotations

import ast
import pickle
from pathlib import Path

import grpc
import pytest
from google.protobuf import any_pb2
from google.rpc import error_details_pb2

from syncpoint.base.model import errors
from syncpoint.base.model.errors import Code


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


@pytest.mark.parametrize("kind", [errors.StaleEpoch, errors.OtherTopic, errors.OtherSchema, errors.ResetBySeek])
def test_a_reason_gives_an_error_its_type_back(kind: type[errors.StaleEpoch]) -> None:
    error = kind("not now")
    reported = errors.received(error.code, error.message, [b"of a stranger", *error.details])
    assert (type(reported), reported.code, reported.message) == (kind, Code.FAILED_PRECONDITION, "not now")
    info = error_details_pb2.ErrorInfo()
    assert any_pb2.Any.FromString(error.details[0]).Unpack(info), "clients can read it, too"
    assert (info.reason, info.domain) == (kind.reason, errors.DOMAIN)


@pytest.mark.parametrize(
    ("code", "kind"), [(3, errors.InvalidArgument), (14, errors.Unavailable), (99, errors.SyncpointError)]
)
def test_without_a_reason_the_code_gives_the_type(code: int, kind: type[errors.SyncpointError]) -> None:
    reported = errors.received(code, "not now")
    assert (type(reported), reported.code, str(reported)[-7:]) == (
        kind,
        Code(code) if code < 17 else Code.UNKNOWN,
        "not now",
    )
    assert getattr(reported, "field", "") == ""


# -- who decides by a text ---------------------------------------------------------------------------------------------

SRC = Path(__file__).parents[4] / "src"
BY_TEXT = {  # etcd says what happened in words alone: codes and details of its answers do not report these apart
    "syncpoint/catalog/metadata/etcd_client.py",
    "syncpoint/catalog/metadata/etcd_streams.py",
}


def decisions_by_text(tree: ast.AST) -> list[int]:
    """Lines that read an exception's cause, a thread's name, or something out of an error's text."""
    caught = {one.name for one in ast.walk(tree) if isinstance(one, ast.ExceptHandler)} | {"error"}

    def is_text(node: ast.expr) -> bool:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("str", "repr"):
            return any(isinstance(one, ast.Name) and one.id in caught for one in node.args)
        if isinstance(node, ast.Subscript):
            return is_text(node.value)
        return (
            isinstance(node, ast.Attribute)
            and node.attr in ("message", "problem")
            and (isinstance(node.value, ast.Name) and node.value.id in caught)
        )

    def decides(node: ast.AST) -> bool:
        if isinstance(node, ast.Attribute):
            if node.attr in ("startswith", "endswith", "find", "index", "count"):
                return is_text(node.value)
            threads = isinstance(node.value, ast.Call) and "current_thread" in ast.dump(node.value.func)
            return node.attr in ("__cause__", "__context__") or (threads and node.attr == "name")
        if not isinstance(node, ast.Compare):
            return False
        sides = [node.left, *node.comparators]  # two texts may be compared, to log nothing twice
        inside = isinstance(node.ops[0], (ast.In, ast.NotIn)) or any(isinstance(one, ast.Constant) for one in sides)
        return inside and any(map(is_text, sides))

    return [one.lineno for one in ast.walk(tree) if decides(one)]  # type: ignore[attr-defined]


def test_nothing_decides_by_an_errors_text() -> None:
    found = {}
    for path in sorted(SRC.rglob("*.py")):
        name = str(path.relative_to(SRC))
        lines = decisions_by_text(ast.parse(path.read_text()))
        if lines and name not in BY_TEXT:
            found[name] = lines
    assert not found


@pytest.mark.parametrize(
    "code",
    [
        'error.message.startswith("epoch")',
        '"x" in str(error)',
        'error.message[:5] == "epoch"',
        "error.__cause__",
        'threading.current_thread().name == "writer"',
        'try: x()\nexcept OSError as bad: y(str(bad) == "no")',
    ],
)
def test_such_a_decision_is_found(code: str) -> None:
    assert decisions_by_text(ast.parse(code))
