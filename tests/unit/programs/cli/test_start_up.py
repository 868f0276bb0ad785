"""What programs import before they do anything: the reason why commands answer at once, held without a clock."""

import json
import subprocess
import sys

import pytest

COMMAND = """
from syncpoint.programs.cli.main import main
sys.argv = ["syncpoint", *words]
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
"""
CALL = """
from syncpoint.front.client.client import Client
from syncpoint.wire.protobuf.messages import pubsub

def call(self, method, request, **options):
    assert method == "Publisher.ListTopics", method
    return pubsub.ListTopicsResponse(topics=[pubsub.Topic(name="projects/p/topics/orders")])

Client.call = call
"""
SERVES = """
import syncpoint.programs.cli.main, syncpoint.programs.cli.serve, syncpoint.node.serve
"""
TESTS = """
import syncpoint.testing
from syncpoint.testing import server_process
"""
REPORT = """
import sys
words = sys.argv[1:]
{body}
names = [name for name, module in sys.modules.items() if name.partition(".")[0] not in sys.stdlib_module_names]
print()
print(__import__("json").dumps(sorted(names)))
"""
A_CALL = {"click", "google", "h2", "hpack", "hyperframe", "syncpoint"}
A_SERVER = A_CALL | {
    "Cython",
    "anyio",
    "certifi",
    "cython",
    "fastavro",
    "google_crc32c",
    "h11",
    "httpcore",
    "idna",
    "prometheus_client",
    "sniffio",
    "starlette",
    "uvloop",
    "zstandard",
}


def imported(body, *words, **env):
    """The modules outside of the standard library that a program has at its end, and what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", REPORT.format(body=body), *words],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": ":".join(filter(None, sys.path)), "PUBSUB_PROJECT_ID": "p", **env},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    printed, _, names = done.stdout.rstrip("\n").rpartition("\n")
    return printed, json.loads(names)


def packages(names):
    """The packages that a person would find in a table of dependencies; those that C modules add have no dots."""
    return {name.partition(".")[0] for name in names if "." in name and not name.startswith("_")}


@pytest.mark.parametrize(
    ("words", "env", "answer"),
    [
        (["topics", "list"], {}, "projects/p/topics/orders"),
        (
            [],
            {"_SYNCPOINT_COMPLETE": "bash_complete", "COMP_WORDS": "syncpoint topics describe ", "COMP_CWORD": "3"},
            "plain,orders",
        ),
    ],
    ids=["topics list", "completion of names"],
)
def test_a_call_imports_neither_a_server_nor_what_draws_colors(words, env, answer):
    printed, names = imported(CALL + COMMAND, *words, **env)
    assert answer in printed
    assert packages(names) <= A_CALL, packages(names) - A_CALL
    rooms = {tuple(name.split(".")[1:3]) for name in names if name.startswith("syncpoint.") and name.count(".") > 1}
    wings = {wing for wing, _ in rooms}
    assert wings <= {"base", "catalog", "front", "programs", "wire"}, wings
    assert len(names) <= 130, len(names)


def test_completion_of_commands_asks_no_server_and_imports_no_client():
    env = {"_SYNCPOINT_COMPLETE": "bash_complete", "COMP_WORDS": "syncpoint topi", "COMP_CWORD": "1"}
    printed, names = imported(COMMAND, **env)
    assert "plain,topics" in printed
    assert packages(names) <= {"click", "syncpoint"}, packages(names)
    assert len(names) <= 50, len(names)


def test_a_server_imports_what_it_answers_with_and_no_more():
    _, names = imported(SERVES)
    assert packages(names) <= A_SERVER, packages(names) - A_SERVER
    assert len(names) <= 780, len(names)


def test_tests_of_users_import_next_to_nothing():
    _, names = imported(TESTS)
    assert packages(names) == {"syncpoint"}
    assert len(names) <= 10, names


@pytest.mark.parametrize(
    ("output", "code", "error"),
    [
        (">/dev/full", 1, "error: the output cannot be written: No space left on device\n"),
        (">&-", 0, ""),
    ],
)
def test_an_output_that_takes_nothing_is_reported(output: str, code: int, error: str) -> None:
    call = "from syncpoint.programs.cli.main import main; main()"
    line = ["sh", "-c", f'exec "$0" -c "$1" docs limits {output}', sys.executable, call]
    env = {"PYTHONPATH": ":".join(filter(None, sys.path))}
    done = subprocess.run(line, capture_output=True, text=True, timeout=60, env=env, check=False)
    assert (done.returncode, done.stderr) == (code, error)
