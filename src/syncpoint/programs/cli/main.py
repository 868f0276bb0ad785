"""The root of the command line: which commands there are, what is common to all, and how failures end.

Place: the outermost room. Commands are imported only when they are called, so `syncpoint --help` and `syncpoint serve`
start without paying for the others.
Promises: every failure names its code and what to do about it, on standard error; the exit code is 0 when all went
well, 2 for a wrong command line, 3 when a resource does not exist, 4 when it exists already, 5 when no server
answers, else 1.
"""

from __future__ import annotations

import errno
import gc
import importlib
import os
import sys
from typing import Any

import click

import syncpoint
from syncpoint.base.model.errors import Code, SyncpointError
from syncpoint.catalog.metadata.contract import StoreError
from syncpoint.programs.cli.errors import CommandFailed, Problem, not_installed
from syncpoint.programs.cli.settings import common_options

# name -> (module, attribute, one line of help); the module is imported when the command is called.
COMMANDS = {
    "serve": ("serve", "serve", "Run a server."),
    "run": ("run", "run", "Run one process of a cluster."),
    "cluster": ("cluster", "cluster", "Run and manage a cluster on this machine."),
    "topics": ("topics", "topics", "Create, change and list topics; publish to them."),
    "subscriptions": ("subscriptions", "subscriptions", "Create, change and list subscriptions; pull, ack and seek."),
    "tail": ("tail", "tail", "Print what is published to a topic, as it comes."),
    "queues": ("queues", "queues", "Create and list queues: topics with one subscription each."),
    "rules": ("subscription_rules", "rules", "Filter and change a subscription's messages by SQL rules."),
    "receipt": ("receipt", "receipt", "Show which disks hold a message, after checking each copy."),
    "trace": ("trace", "trace", "Trace a message from its publish to its acknowledgement."),
    "at-risk": ("at_risk", "at_risk", "Show messages that a failure now would lose or deliver twice."),
    "why": ("why", "why", "Explain why a subscriber gets nothing, and what to do."),
    "scheduled": ("scheduled_messages", "scheduled", "List, show and cancel scheduled messages."),
    "dead-letters": ("dead_letters", "dead_letters", "Show and redrive dead letters."),
    "apply": ("topologies", "apply", "Apply topics, subscriptions, rules and grants from a file."),
    "diff": ("topologies", "diff", "Preview `apply`."),
    "topology": ("topologies", "topology", "Draw a graph of topics and subscriptions."),
    "snapshots": ("snapshots", "snapshots", "Save a subscription's acknowledgement state, to seek back to it."),
    "schemas": ("schemas", "schemas", "Manage schemas that messages must match."),
    "message-transforms": ("message_transforms", "message_transforms", "Test message transforms on a message."),
    "cursors": ("cursors", "cursors", "List and delete named readers of topics, such as data pipelines."),
    "server": ("server", "server", "Describe the running server."),
    "disks": ("disks", "disks", "Show the state of the server's disks."),
    "constraints": ("constraints", "constraints", "Control which clients use which forwarders."),
    "mitigation": ("mitigation", "mitigation", "Show and pause automatic mitigation of unhealthy processes."),
    "headroom": ("mitigation", "headroom", "Check spare capacity for the loss of a zone."),
    "drain": ("drain", "drain", "Take a process, a cluster or a region out of service without errors."),
    "undrain": ("drain", "undrain", "Put it back into service."),
    "rollout": ("rollout", "rollout", "Roll out a version in steps, and roll back if it is worse."),
    "federation": ("federation", "federation", "Copy messages between servers, with Spark."),
    "gateway": ("gateway", "gateway", "Run one address in front of several sites, and mask sites."),
    "bridge": ("bridge", "bridge", "Take messages from MQTT and RabbitMQ into topics, and back."),
    "drill": ("drills", "drill", "Rehearse a failure, roll it back, and certify what clients saw of it."),
    "probers": ("probers", "probers", "Probe the service as a client and check the results."),
    "archive": ("archive", "archive", "Archive a topic to Parquet files, and restore it."),
    "analyze": ("analyze_letters", "analyze", "Analyze a topic's log with Spark."),
    "simulate": ("simulate", "simulate", "Simulate routing with many forwarders."),
    "keys": ("keys", "keys", "Rotate the keys that message data is sealed with."),
    "iam": ("iam", "iam", "Manage access policies and service accounts."),
    "tenants": ("tenants", "tenants", "Manage tenants: owners of projects, and bounds that the projects inherit."),
    "projects": ("projects", "projects", "Declare how a project survives disasters, and check that it does."),
    "audit": ("audit", "audit", "Read audit logs and check their integrity."),
    "top": ("top", "top", "Show live activity of a server or a cluster."),
    "bench": ("bench", "bench", "Measure publishing and receiving from this machine."),
    "limits": ("limits", "limits", "Read and change the server's flow control limits."),
    "log": ("log", "log", "Verify, dump and recover a stopped server's disks."),
    "slo": ("slo", "slo", "Show service level objectives and whether they are met."),
    "alerts": ("alerts", "alerts", "List, acknowledge and silence alerts."),
    "dashboards": ("dashboards", "dashboards", "Export dashboards for Grafana."),
    "monitor": ("watch_targets", "monitor", "Monitor servers by their metrics."),
    "support-bundle": (
        "support_bundle",
        "support_bundle",
        "Collect state, metrics and logs for somebody who helps, without messages and secrets.",
    ),
    "doctor": ("doctor", "doctor", "Check whether this machine is suited to run a server."),
    "env-init": ("env_init", "env_init", "Print environment variables that point client libraries to the server."),
    "config": ("config", "config", "Set a default project and endpoint."),
    "docs": ("docs", "docs", "Read the documentation of this version."),
    "completion": ("completion", "completion", "Print the completion script of a shell."),
}

GROUPS = {
    "Start": ("serve", "env-init", "config", "completion", "docs", "doctor", "bench"),
    "Use": (
        *("topics", "subscriptions", "tail", "queues", "rules", "schemas", "message-transforms", "snapshots"),
        *("scheduled", "dead-letters", "cursors", "apply", "diff", "topology"),
    ),
    "Find out": ("why", "trace", "receipt", "at-risk", "top"),
    "Operate": (
        *(
            "server",
            "disks",
            "limits",
            "log",
            "slo",
            "alerts",
            "dashboards",
            "monitor",
            "probers",
            "drill",
            "support-bundle",
        ),
    ),
    "Operate a cluster": (
        *("cluster", "run", "drain", "undrain", "headroom", "mitigation", "constraints", "rollout", "simulate"),
    ),
    "Access": ("iam", "tenants", "projects", "keys", "audit"),
    "Data": ("analyze", "archive", "bridge", "federation", "gateway"),
}
"""The order in which `--help` shows the commands; each stands in one group."""

HABITS = {
    "pubsub": "Leave `pubsub` out, as in: syncpoint topics list.",
    "emulators": "Did you mean 'serve'?",
    "start": "Did you mean 'serve'?",
}
"""What users of gcloud and its emulator type."""

EPILOG = """\b
The first minutes:
  syncpoint serve                                        (in another terminal)
  eval "$(syncpoint env-init --project demo)"
  syncpoint topics create orders
  syncpoint subscriptions create billing --topic orders
  syncpoint topics publish orders --message hello
  syncpoint subscriptions pull billing --auto-ack

\b
Exit codes: 0 done, 1 failed, 2 wrong command line, 3 does not exist,
4 already exists, 5 no server answers.
"""


class Root(click.Group):
    """The group that imports a command when it is asked for, and turns a server's refusal into a readable failure."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for names in GROUPS.values() for name in names]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, attribute, _ = COMMANDS[cmd_name]
        command: click.Command = getattr(importlib.import_module(f"syncpoint.programs.cli.{module}"), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        word = args[0]
        if word not in COMMANDS and not word.startswith("-") and not ctx.resilient_parsing:
            import difflib

            close = difflib.get_close_matches(word, COMMANDS, 1)
            hint = HABITS.get(word) or (f"Did you mean {close[0]!r}?" if close else "")
            ctx.fail(f"No such command {word!r}. {hint}".rstrip())
        return super().resolve_command(ctx, args)

    @staticmethod
    def _meant(error: SyncpointError, ctx: click.Context) -> str:
        settings = ctx.find_root().obj
        if error.code is not Code.NOT_FOUND or settings is None:
            return ""
        from syncpoint.programs.cli.names import meant

        return meant(settings, error.message)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, COMMANDS))
        for title, names in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), COMMANDS[name][2]) for name in names])

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except SyncpointError as error:
            raise CommandFailed(error, ctx, self._meant(error, ctx)) from error
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] == "syncpoint":
                raise
            raise not_installed(error) from error
        except OSError as error:
            if error.filename is None and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise Problem(f"the output cannot be written: {error.strerror}") from error
            if error.filename is None or isinstance(error, BrokenPipeError):
                raise
            raise Problem(f"{error.filename}: {error.strerror}") from error
        except StoreError as error:
            raise Problem(f"the metadata store does not answer: {error}", exit_code=5) from error


@click.command(
    cls=Root, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
@click.version_option(syncpoint.__version__, prog_name="syncpoint")
@common_options
def cli() -> None:
    """Syncpoint: a self-hosted messaging service that Google Cloud Pub/Sub clients use unchanged."""


def main() -> None:
    """The entry point of the command `syncpoint`."""
    try:
        cli(prog_name="syncpoint")
    except BrokenPipeError:  # the reader of our output (head, less) has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    finally:
        gc.freeze()  # else the interpreter looks for garbage twice as it ends, a fifth of a short command's time
