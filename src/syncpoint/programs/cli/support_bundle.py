"""`syncpoint support-bundle`: a file about a server or a cluster that can be given to somebody else.

Place: the operator's side of the command line: calls that read, `/metrics`, and files of logs. What may stand in the
bundle is decided in `scrubbing`.
Promises: no message, no label, no secret; what does not answer is noted and stops nothing; the file, which only its
owner may read, holds at most `LOG_BYTES_MAX` of each log, `LOGS_MAX` logs and `LISTED_MAX` topics and subscriptions.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import zipfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, Any

import click

import syncpoint
from syncpoint.base.model.errors import SyncpointError
from syncpoint.base.model.wording import counted
from syncpoint.programs.cli.errors import Problem
from syncpoint.programs.cli.names import listing
from syncpoint.programs.cli.output import as_dict, inform
from syncpoint.programs.cli.scrubbing import SecretTexts, scrubbed, without_secrets
from syncpoint.programs.cli.settings import Settings, with_settings

LOG_BYTES_MAX, LOGS_MAX, METRICS_BYTES_MAX, LISTED_MAX = 1 << 20, 64, 8 << 20, 500
ANSWER_S = 10.0
READS = (
    *("GetServer", "ListDisks", "GetLimits", "ListMembers", "ListChains", "ListDurabilityClasses", "ListSlis"),
    *("ListSlos", "ListAlerts", "ListDrains", "GetMitigation", "GetHeadroom"),
)
"""Methods of the admin service that only read, and take nothing."""
SECRET_NAMES = ("TOKEN", "SECRET", "PASSWORD", "CREDENTIAL", "PRIVATE", "API_KEY", "ACCESS_KEY")
"""Variables of the environment whose names have one of these words hold secrets."""
ABOUT = """What is in this file: versions, states, numbers; names of projects, topics, subscriptions and machines.
What is not: messages, labels, filters and other text that users wrote, credentials, keys. Logs had what looks like a
secret removed. Look through it before you give it away.
"""


@click.command("support-bundle")
@click.option(
    "--output", "-o", type=click.Path(dir_okay=False, path_type=Path), help="The file [syncpoint-support-TIME.zip]."
)
@click.option("--dir", "folder", type=click.Path(file_okay=False, path_type=Path), help="The folder of `cluster up`.")
@click.option(
    "--config", "path", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="A cluster's cluster.yaml."
)
@click.option(
    "--log",
    "logs",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A file with what a server printed; may be repeated. With --dir, all of the cluster's logs.",
)
@with_settings
def support_bundle(
    settings: Settings, output: Path | None, folder: Path | None, path: Path | None, logs: tuple[Path, ...]
) -> None:
    """Collect state, metrics and logs in a file to give to somebody who helps, without messages and secrets.

    With --project, also the settings and backlogs of its topics and subscriptions. What does not answer is left out and
    noted in the file.

    \b
    Examples:
      syncpoint support-bundle
      syncpoint support-bundle --project shop --log server.log -o case-17.zip
      syncpoint support-bundle --dir my-cluster
    """
    if folder and path:
        raise click.UsageError("Give --dir or --config, not both.")
    now = datetime.now(UTC)
    made = output or Path(f"syncpoint-support-{now:%Y%m%d-%H%M%S}.zip")
    try:
        file = os.fdopen(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")
    except FileExistsError:
        raise Problem(f"{made} exists already", "Choose another file with --output.") from None
    with file:
        collected = _Bundle(file, SecretTexts(_own_secrets(settings)))
        with collected:
            collected.add("README.txt", ABOUT)
            collected.add("about.json", _pretty(_about(settings, now)))
            _states(collected, settings)
            _metrics(collected, settings, path, folder)
            _settings_file(collected, path or (folder / "cluster.yaml" if folder else None))
            _logs(collected, [*logs, *(sorted((folder / "logs").glob("*.log")) if folder else ())])
    silent = f"; {counted(len(collected.missing), 'answer')} missing, see missing.json" if collected.missing else ""
    inform(f"Wrote {made} with {counted(collected.files, 'file')}{silent}. Look through it before you give it away.")


class _Bundle:
    """The file while it is written. `missing`: what could not be had, and why."""

    def __init__(self, file: IO[bytes], secrets: SecretTexts) -> None:
        self._zip = zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED)
        self._secrets = secrets
        self.missing: dict[str, str] = {}
        self.files = 0

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if kind is None and self.missing:
            self.add("missing.json", _pretty(self.missing))
        self._zip.close()

    def add(self, name: str, text: str) -> None:
        """Write a text; whatever it is, known secrets are removed last."""
        self._zip.writestr(name, self._secrets.removed_from(text))
        self.files += 1

    def attempt(self, name: str, ask: Callable[[], Any]) -> Any:
        """An answer, which is written, too; None and a note where there is none."""
        try:
            answer = ask()
        except (SyncpointError, Problem, click.UsageError, OSError, ValueError) as error:
            self.missing[name] = without_secrets(str(error))[:500]
            return None
        self.add(f"{name}.json", _pretty(scrubbed(answer)))
        return answer


def _pretty(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def _about(settings: Settings, now: datetime) -> dict[str, Any]:
    from syncpoint.base import kernel

    return {
        "made": now.isoformat(timespec="seconds"),
        "version": syncpoint.__version__,
        "kernel": "compiled" if kernel.COMPILED else "uncompiled",
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "processors": os.cpu_count(),
        "endpoint": without_secrets(settings.endpoint),
    }


def _own_secrets(settings: Settings) -> Iterator[str]:
    """What this command can know: credentials, the key of --tls-key, and secrets of the environment."""
    for place in (settings.credentials_option, os.environ.get("SYNCPOINT_CREDENTIALS"), settings.tls_key):
        if not place:
            continue
        try:
            text = Path(place).expanduser().read_text(errors="replace")
        except OSError:
            continue
        yield text
        if text.lstrip().startswith("{"):
            try:
                yield from (str(value) for key, value in json.loads(text).items() if key.startswith("private_key"))
            except (ValueError, AttributeError):
                continue
    for name, value in os.environ.items():
        if any(word in name.upper() for word in SECRET_NAMES) and not name.upper().endswith(("_FILE", "_PATH")):
            yield value


def _states(collected: _Bundle, settings: Settings) -> None:
    from syncpoint.wire.protobuf.messages import admin

    settings.timeout_option = settings.timeout_option or ANSWER_S
    try:
        client = settings.client(patience_s=0.0)
    except (SyncpointError, Problem, click.UsageError, OSError) as error:
        collected.missing["state"] = without_secrets(str(error))[:500]
        return
    with client:
        for method in READS:
            request = getattr(admin, f"{method}Request")()
            answer = collected.attempt(f"state/{method}", partial(_asked, client, method, request))
            if answer is None and method == "GetServer":
                return  # nobody is there: the others would wait as long
        if settings.project_or_none:
            for collection in ("topics", "subscriptions"):
                _resources(collected, client, settings, collection)


def _asked(client: Any, method: str, request: Any) -> dict[str, Any]:
    return as_dict(client.call(f"Admin.{method}", request))


def _resources(collected: _Bundle, client: Any, settings: Settings, collection: str) -> None:
    """Settings of a project's topics or subscriptions, and what each is at."""
    from syncpoint.wire.protobuf.messages import admin

    def listed() -> list[Any]:
        return [as_dict(one) for one in islice(listing(client, settings, collection), LISTED_MAX)]

    word = collection.removesuffix("s")
    found = collected.attempt(f"project/{collection}", listed) or []
    kind = f"Get{word.capitalize()}State"
    requests = [getattr(admin, f"{kind}Request")(**{word: one["name"]}) for one in found]
    answers = client.call_each(f"Admin.{kind}", requests)
    for one, answer in zip(found, answers, strict=True):
        if isinstance(answer, SyncpointError):
            collected.missing[f"{kind} {one['name']}"] = without_secrets(answer.message)[:500]
    states = [as_dict(answer) for answer in answers if not isinstance(answer, SyncpointError)]
    collected.add(f"project/{collection}-states.json", _pretty(scrubbed(states)))


def _metrics(collected: _Bundle, settings: Settings, path: Path | None, folder: Path | None) -> None:
    from syncpoint.programs.cli.top import metrics_places
    from syncpoint.programs.cli.top_readings import text_of

    try:
        places, _ = metrics_places(settings, path, folder, ())
    except (SyncpointError, Problem, click.UsageError, OSError) as error:
        collected.missing["metrics"] = without_secrets(str(error))[:500]
        return
    for place in places:
        text = text_of(place, ANSWER_S)
        if isinstance(text, Exception):
            collected.missing[f"metrics of {place.called}"] = without_secrets(str(text))[:500]
            continue
        shown = text[:METRICS_BYTES_MAX].decode(errors="replace")
        collected.add(f"metrics/{_file_name(place.called)}.txt", without_secrets(shown))


def _settings_file(collected: _Bundle, path: Path | None) -> None:
    if path is None:
        return
    from syncpoint.base.model.yaml_text import load_yaml

    collected.attempt("settings", lambda: load_yaml(path.read_text()))


def _logs(collected: _Bundle, paths: list[Path]) -> None:
    if len(paths) > LOGS_MAX:
        collected.missing["logs"] = f"{len(paths) - LOGS_MAX} of {len(paths)} files were left out"
    for number, path in enumerate(paths[:LOGS_MAX], 1):
        try:
            with path.open("rb") as file:
                file.seek(max(path.stat().st_size - LOG_BYTES_MAX, 0))
                text = file.read(LOG_BYTES_MAX).decode(errors="replace")
        except OSError as error:
            collected.missing[f"log {path}"] = str(error.strerror)
            continue
        collected.add(f"logs/{number:02}-{_file_name(path.name)}", without_secrets(text))


def _file_name(text: str) -> str:
    return "".join(one if one.isalnum() or one in "-_." else "-" for one in text)[:100]
