"""`syncpoint federation standby`, `failover` and `failback`: the runbook of the pattern active-passive.

Place: beside `federation`. Asks both clusters, lets `federation.failover` decide, and writes where publishers and
consumers are to go: they learn it from the file of the state folder that each command prints.
"""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from syncpoint.base.model.errors import Code, FailedPrecondition, NotFound, SyncpointError
from syncpoint.programs.cli.errors import Problem, explained_by
from syncpoint.programs.cli.federation_file import file_argument
from syncpoint.programs.cli.output import inform
from syncpoint.programs.cli.settings import Settings, with_settings

if TYPE_CHECKING:
    from syncpoint.programs.federation.failover import FailoverMove
    from syncpoint.programs.federation.patterns.active_passive import ActivePassive
    from syncpoint.programs.federation.servers import Servers
    from syncpoint.programs.federation.spec import FederatedCluster, Federation


@click.command()
@click.argument("task")
@file_argument
@click.option(
    "--subscription",
    "names",
    multiple=True,
    required=True,
    help="Id of a subscription of the secondary; may be repeated.",
)
@with_settings
def standby(settings: Settings, task: str, file: Path, names: tuple[str, ...]) -> None:
    """Set a time to live for copies in the secondary's subscriptions: twice the `failover` of an active-passive TASK.

    Two rules replace all others: `local` for messages published there, `copies` for copied messages.

    \b
    Example:
      syncpoint federation standby orders --subscription billing
    """
    from syncpoint.programs.federation.servers import Servers

    _, found = _read(file, task)
    with Servers() as servers:
        for name in names:
            _rules(servers, found, f"projects/{found.project}/subscriptions/{name}")
            inform(f"{found.secondary.name}: copies live {found.ttl} in [{name}].")


def _rules(servers: Servers, found: ActivePassive, subscription: str) -> None:
    from syncpoint.programs.federation.patterns.active_passive import COPIES_RULE, LOCAL_RULE, REPLICATED
    from syncpoint.wire.protobuf.messages import admin

    wanted = {
        LOCAL_RULE: admin.Rule(name=LOCAL_RULE, sql=f"{REPLICATED} IS NULL OR {REPLICATED} <> 1"),
        COPIES_RULE: admin.Rule(
            name=COPIES_RULE, sql=f"{REPLICATED} = 1", action=f"SET sys.TimeToLive = '{found.ttl}'"
        ),
    }
    listing = admin.ListRulesRequest(subscription=subscription)
    there = {rule.name: rule for rule in servers.call(found.secondary, "Admin.ListRules", listing).rules}
    for name, rule in wanted.items():
        if name not in there:
            request: Any = admin.CreateRuleRequest(subscription=subscription, rule=rule)
            servers.call(found.secondary, "Admin.CreateRule", request)
        elif there[name] != rule:
            request = admin.UpdateRuleRequest(subscription=subscription, rule=rule)
            servers.call(found.secondary, "Admin.UpdateRule", request)
    for name in there.keys() - wanted.keys():
        servers.call(found.secondary, "Admin.DeleteRule", admin.DeleteRuleRequest(subscription=subscription, name=name))


@click.command()
@click.argument("task")
@file_argument
@click.option("--planned", is_flag=True, help="Fail over even if the primary answers.")
@with_settings
def failover(settings: Settings, task: str, file: Path, planned: bool) -> None:
    """Move publishers and consumers of an active-passive TASK to the secondary.

    Refused while the primary answers (unless --planned is given), and if the secondary does not answer.

    \b
    Example:
      syncpoint federation failover TASK federation.yaml --planned
    """
    from syncpoint.programs.federation.failover import FailoverMove

    _move(task, file, FailoverMove.FAILOVER, planned=planned)


@click.command()
@click.argument("task")
@file_argument
@click.option("--publishers", "who", flag_value="publishers", help="First: publishers go back to the primary.")
@click.option("--consumers", "who", flag_value="consumers", help="Then: consumers, once local messages are drained.")
@click.option(
    "--subscription", "names", multiple=True, help="Id of a subscription of the secondary to drain; may be repeated."
)
@with_settings
def failback(settings: Settings, task: str, file: Path, who: str | None, names: tuple[str, ...]) -> None:
    """Move publishers, then consumers, of an active-passive TASK back to the primary.

    \b
    Each step is refused until the previous step is complete:
      syncpoint federation failback orders --publishers
      syncpoint federation failback orders --consumers --subscription billing
    """
    from syncpoint.programs.federation.failover import FailoverMove

    if who is None:
        raise click.UsageError("Give --publishers first, then --consumers.")
    if who == "consumers" and not names:
        raise click.UsageError("Name the secondary's subscriptions to drain with --subscription.")
    _move(task, file, FailoverMove.PUBLISHERS_BACK if who == "publishers" else FailoverMove.CONSUMERS_BACK, names)


def _move(task: str, file: Path, move: FailoverMove, names: tuple[str, ...] = (), *, planned: bool = False) -> None:
    from syncpoint.programs.federation import failover as runbook
    from syncpoint.programs.federation.servers import Servers
    from syncpoint.programs.federation.shared_run import bring, share

    federation, found = _read(file, task)
    state = federation.runtime.state
    if federation.runtime.shared:
        bring(federation)
    with Servers(patience_s=1.0) as servers:
        observed = runbook.Observed(
            _answers(servers, found.primary), _answers(servers, found.secondary), _local_left(servers, found, names)
        )
    try:
        stage = runbook.decide(runbook.load_stage(state, task), move, observed, planned=planned)
    except FailedPrecondition as error:
        raise Problem(error.message, "`syncpoint docs federation-patterns` has the runbook.") from error
    now = runbook.placed(task, stage, found.primary.name, found.secondary.name, time.time())
    share(federation, lambda shared: shared.setdefault("failover", {}).update({task: asdict(now)}))
    runbook.save(state, now)
    inform(f"publishers: {now.publishers}; consumers: {now.consumers} ({runbook.path_of(state, task)})")


def _answers(servers: Servers, cluster: FederatedCluster) -> bool:
    """Whether a server is there and serves; one that refuses the call is there."""
    from syncpoint.wire.protobuf.messages import pubsub

    try:
        servers.call(cluster, "Publisher.ListTopics", pubsub.ListTopicsRequest(project="projects/standby", page_size=1))
    except SyncpointError as error:
        return error.code not in (Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED)
    return True


def _local_left(servers: Servers, found: ActivePassive, names: tuple[str, ...]) -> int | None:
    """Messages that were published at the secondary and are not acknowledged there; None: it does not say."""
    from syncpoint.programs.federation.patterns.active_passive import REPLICATED
    from syncpoint.wire.protobuf.messages import admin

    left = 0
    for name in names:
        request = admin.PeekSubscriptionRequest(
            subscription=f"projects/{found.project}/subscriptions/{name}",
            filter=f"NOT attributes:{REPLICATED}",
            page_size=1000,
        )
        try:
            answer = servers.call(found.secondary, "Admin.PeekSubscription", request)
        except SyncpointError:
            return None
        if answer.unknown:
            return None
        left += len(answer.messages) + bool(answer.next_page_token)
    return left


def _read(file: Path, task: str) -> tuple[Federation, ActivePassive]:
    from syncpoint.programs.federation.patterns.active_passive import task_named
    from syncpoint.programs.federation.spec import load

    try:
        with explained_by("federation-patterns", file):
            federation = load(file)
            return federation, task_named(federation, task)
    except NotFound as error:
        raise Problem(error.message, f"`syncpoint federation plan {file}` lists the tasks.") from error
