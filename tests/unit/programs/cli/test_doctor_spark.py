"""What the doctor says of Java, of the libraries, and of the Pythons that Spark will start."""

import os
import sys

import pytest

from syncpoint.programs.cli import spark_examinations as examinations


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Makes a program of a name that says a text and ends with a code; it is the only one on the path."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))

    def make(name, says, code=0):
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\necho '{says}' >&2\nexit {code}\n")
        path.chmod(0o755)
        return str(path)

    return make


@pytest.mark.parametrize(
    ("says", "code", "state"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 0, "ok"),
        ('openjdk version "21" 2023-09-19', 0, "ok"),
        ('java version "1.8.0_402"', 0, "problem"),
        ('openjdk version "11.0.2" 2019-01-15', 0, "problem"),
        ("something else", 0, "warning"),
        ("broken", 1, "problem"),
    ],
)
def test_java(program, says, code, state):
    program("java", says, code)
    finding = examinations.java()
    assert finding.state == state
    assert bool(finding.advice) is (state != "ok")


def test_no_java(program, monkeypatch):
    assert "none on the path" in examinations.java().found
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    finding = examinations.java()
    assert (finding.state, "/nowhere/bin/java" in finding.found, "JAVA_HOME" in finding.advice) == ("problem", 1, 1)


@pytest.mark.parametrize(
    ("name", "version", "state"),
    [
        ("pyspark", "4.3.0", "ok"),
        ("pyspark", "4.2.9", "problem"),
        ("pyarrow", "19.0.0", "ok"),
        ("pyarrow", "9.0", "problem"),
    ],
)
def test_versions_of_libraries(monkeypatch, name, version, state):
    wanted = ['pyspark==4.3.0 ; extra == "spark"', 'pyarrow>=19 ; extra == "spark"']
    monkeypatch.setattr(examinations.importlib.metadata, "requires", lambda package: wanted)
    monkeypatch.setattr(examinations.importlib.metadata, "version", lambda package: version)
    finding = examinations.library(name)
    assert finding.state == state
    assert finding.advice.endswith('[spark]"') is (state != "ok")


def test_a_library_that_is_not_there():
    assert examinations.library("no-such-library").found == "not installed"


@pytest.mark.parametrize(
    ("answer", "state", "reported"),
    [
        ("{} {} 1 1", "ok", ""),
        ("{} {} 0 1", "problem", "has no pyspark_pubsub"),
        ("{} {} 0 0", "problem", "has no pyspark_pubsub and no pyspark"),
        ("3 1 1 1", "problem", "Python 3.1"),
        ("hello", "problem", "unexpected answer"),
    ],
)
def test_the_python_that_was_chosen(program, monkeypatch, answer, state, reported):
    chosen = program("other", answer.format(*sys.version_info[:2]))
    monkeypatch.setenv("PYSPARK_PYTHON", chosen)
    finding = examinations.python_of("PYSPARK_PYTHON")
    assert finding.state == state
    assert chosen in finding.found
    assert reported in finding.found
    assert (f"PYSPARK_PYTHON={sys.executable}" in finding.advice) is (state != "ok")


def test_the_python_of_the_path(program, monkeypatch):
    """One that lacks the format can still be mended by an import, so it is no problem yet."""
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    assert examinations.python_of("PYSPARK_PYTHON").state == "problem"
    program("python3", "{} {} 0 0".format(*sys.version_info[:2]))
    finding = examinations.python_of("PYSPARK_PYTHON")
    assert finding.state == "warning"
    assert "import pyspark_pubsub" in finding.advice


def test_a_python_is_really_asked(monkeypatch):
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    found = examinations.python_of("PYSPARK_PYTHON").found
    assert "unexpected answer" not in found
    assert "code" not in found


def test_the_report_has_it_when_it_is_asked_for(run, program, tmp_path, monkeypatch):
    monkeypatch.setattr("syncpoint.programs.cli.examinations.SYNCS", 3)
    program("java", 'openjdk version "17.0.15"')
    words = ["doctor", "--port", "0", "--data", str(tmp_path / "data")]
    assert "Java" not in run(*words).stdout
    assert "17.0.15" in run(*words, "--spark").stdout
