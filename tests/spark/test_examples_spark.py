"""The notebook and the job of `examples/spark`, run as they are shipped."""

import importlib.util
import json
from pathlib import Path

import pytest

pytestmark = pytest.mark.shows("spark")
EXAMPLES = Path(__file__).parents[2] / "examples" / "spark"


def test_the_notebook_runs_from_its_first_cell_to_its_last(spark, server, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("SYNCPOINT_ENDPOINT", server.endpoint)
    monkeypatch.setenv("PUBSUB_PROJECT_ID", "notebook")
    monkeypatch.setenv("FIRST_HOUR_FOLDER", str(tmp_path))
    cells = json.loads((EXAMPLES / "first_hour.ipynb").read_text())["cells"]
    names: dict = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), cell["id"], "exec"), names)
    assert "|refund|     100|" in capsys.readouterr().out
    assert names["spark"].read.parquet(str(tmp_path / "orders")).count() == 1000


def test_the_job_appends_each_message_once(spark, server, topic, tmp_path):
    spec = importlib.util.spec_from_file_location("topic_to_parquet", EXAMPLES / "topic_to_parquet.py")
    job = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(job)
    for first, end in ((0, 100), (100, 130)):
        topic.publish(first, end)
        assert job.append(spark, server.endpoint, topic.name, str(tmp_path / "files")) == end - first
    found = spark.read.parquet(str(tmp_path / "files")).collect()
    assert sorted(int(row.data) for row in found) == list(range(130))
