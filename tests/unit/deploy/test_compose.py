"""The compose file: its server is called as the command line is, and as the image has it. It is not run here."""

from __future__ import annotations

import re
from pathlib import Path

import click
import yaml

from syncpoint.programs.cli.serve import serve

ROOT = Path(__file__).parents[3]
FILE = ROOT / "deploy" / "compose" / "compose.yaml"


def test_the_server_takes_its_options_and_listens_to_this_machine_alone() -> None:
    service = yaml.safe_load(FILE.read_text())["services"]["syncpoint"]
    program, *words = service["command"]
    assert program == "serve"
    made = serve.make_context("serve", words, parent=click.Context(click.Group("syncpoint")))
    assert (made.params["dev"], made.params["host"], made.params["insecure"]) == (True, "0.0.0.0", True)
    assert service["ports"] == ["127.0.0.1:8085:8085"]
    assert made.params["port"] == 8085


def test_it_builds_the_image_and_keeps_the_data_where_the_image_has_its_volume() -> None:
    content = yaml.safe_load(FILE.read_text())
    service = content["services"]["syncpoint"]
    assert (FILE.parent / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
    (volume,) = service["volumes"]
    name, _, place = volume.partition(":")
    assert name in content["volumes"]
    assert place == service["command"][service["command"].index("--data") + 1]
    assert re.search(rf'VOLUME \["{place}"\]', (ROOT / "deploy" / "Containerfile").read_text())


def test_its_health_is_that_of_a_page_that_the_server_has() -> None:
    service = yaml.safe_load(FILE.read_text())["services"]["syncpoint"]
    code = service["healthcheck"]["test"][-1]
    compile(code, "healthcheck", "exec")
    assert "/readyz" in code
