"""What importing the package does for Spark."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

import pyspark_pubsub


class Session:
    """One that notes what is registered."""

    def __init__(self) -> None:
        self.registered: list[Any] = []

    @property
    def dataSource(self) -> Session:
        return self

    def register(self, source: Any) -> None:
        self.registered.append(source)


@pytest.mark.parametrize("package", ["pyspark_pubsub", "syncpoint.programs.federation"])
def test_workers_run_on_this_python_unless_somebody_chose_one(package: str) -> None:
    for chosen, expected in ((None, sys.executable), ("/other/python", "/other/python")):
        env = {name: value for name, value in os.environ.items() if name != "PYSPARK_PYTHON"}
        if chosen:
            env["PYSPARK_PYTHON"] = chosen
        code = f"import os, {package}; print(os.environ['PYSPARK_PYTHON'])"
        done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == expected


def test_an_active_session_knows_the_format(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/other/python")
    session = Session()
    pyspark_pubsub._prepare(session)
    assert session.registered == [pyspark_pubsub.DefaultSource]
    assert os.environ["PYSPARK_PYTHON"] == "/other/python"
