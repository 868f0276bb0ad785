"""`syncpoint constraints ...`: rules saying which clients may use which forwarders for which topics.

Place: the operator's side of the command line; calls of syncpoint.admin.v1.Admin.
Promise: a rule that would leave a topic with nowhere to go is refused before it is stored, and `test` reports it with
exit code 1 without storing anything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from syncpoint.base.model.errors import Code, SyncpointError
from syncpoint.programs.cli.errors import Problem
from syncpoint.programs.cli.help_text import Group
from syncpoint.programs.cli.names import others
from syncpoint.programs.cli.output import inform, print_answer, without_empty_columns
from syncpoint.programs.cli.settings import Settings, with_settings

SHOWN = 10  # names of each kind in the answer of `test`


@click.group(cls=Group)
def constraints() -> None:
    """Control which clients use which forwarders.

    A rule has three selectors: conditions FIELD=VALUE joined by commas, all of which must hold; a value may hold `*`,
    and a selector left out means all. Clients are proxies; they and forwarders have name, region, zone and rack, topics
    have name and project. The rule with the highest priority decides, at the same priority one that denies. Where no
    rule matches, everything is allowed.
    """


def _rule_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--comment", default="", help="Why the rule exists."),
        click.option(
            "--priority", type=int, default=0, show_default=True, help="The rule with the highest priority decides."
        ),
        click.option("--topics", default="", metavar="FIELD=VALUE,...", help="For these topics."),
        click.option("--forwarders", default="", metavar="FIELD=VALUE,...", help="... these forwarders"),
        click.option(
            "--clients", default="", metavar="FIELD=VALUE,...", help="Proxies that may (not) use these forwarders."
        ),
        click.option("--allow", "action", flag_value="ALLOW", help="They may."),
        click.option("--deny", "action", flag_value="DENY", default="DENY", help="Deny this (the default)."),
    ):
        command = option(command)
    return command


def _message(name: str, action: str, clients: str, forwarders: str, topics: str, priority: int, comment: str) -> Any:
    from syncpoint.wire.protobuf.messages import admin

    return admin.Constraint(
        name=name,
        action=admin.Constraint.DESCRIPTOR.enum_types_by_name["Action"].values_by_name[action].number,
        clients=clients,
        forwarders=forwarders,
        topics=topics,
        priority=priority,
        comment=comment,
    )


@constraints.command()
@click.argument("name")
@_rule_options
@with_settings
def create(settings: Settings, name: str, **rule: Any) -> None:
    """Create a rule; it takes effect immediately.

    \b
    Examples:
      syncpoint constraints create no-old-rack --forwarders rack=r7
      syncpoint constraints create eu-only --topics name=invoices-* --forwarders region=us --comment "law"
      syncpoint constraints create but-these --allow --priority 10 --topics name=invoices-test --forwarders region=us
    """
    from syncpoint.wire.protobuf.messages import admin

    request = admin.CreateConstraintRequest(constraint=_message(name, **rule))
    with settings.client() as client, refusals_explained():
        made = client.call("Admin.CreateConstraint", request)
    inform(f"Created constraint [{name}].")
    print_answer(settings.format, made)


@constraints.command("list")
@with_settings
def list_all(settings: Settings) -> None:
    """List the rules, highest priority first.

    \b
    Example:
      syncpoint constraints list
    """
    from syncpoint.wire.protobuf.messages import admin

    found = settings.call("Admin.ListConstraints", admin.ListConstraintsRequest()).constraints
    ordered = sorted(found, key=lambda one: (-one.priority, _action(one) != "DENY", one.name))
    rows = [
        [one.name, _action(one), str(one.priority), *(part or "(all)" for part in _selectors(one)), one.comment]
        for one in ordered
    ]
    headings = ["NAME", "ACTION", "PRIORITY", "CLIENTS", "FORWARDERS", "TOPICS", "COMMENT"]
    print_answer(settings.format, ordered, *without_empty_columns(headings, rows))


@constraints.command()
@click.argument("name", nargs=-1, required=True, shell_complete=others("constraints"))
@with_settings
def delete(settings: Settings, name: tuple[str, ...]) -> None:
    """Delete rules.

    \b
    Example:
      syncpoint constraints delete keep-eu
    """
    from syncpoint.wire.protobuf.messages import admin

    with settings.client() as client, refusals_explained():
        for one in name:
            client.call("Admin.DeleteConstraint", admin.DeleteConstraintRequest(name=one))
            inform(f"Deleted constraint [{one}].")


@constraints.command()
@_rule_options
@with_settings
def test(settings: Settings, **rule: Any) -> None:
    """Try a rule without storing it: show what it applies to, and whether it would be accepted.

    \b
    Example:
      syncpoint constraints test --deny --clients region=us --forwarders region=eu
    """
    from syncpoint.wire.protobuf.messages import admin

    request = admin.TestConstraintRequest(constraint=_message("", **rule))
    answer = settings.call("Admin.TestConstraint", request)
    kinds = {"clients": answer.clients, "forwarders": answer.forwarders, "topics": answer.topics}
    print_answer(
        settings.format,
        answer,
        ["SELECTED", "COUNT", "NAMES"],
        [[kind, f"{len(names):,}", _some(list(names))] for kind, names in kinds.items()],
    )
    if answer.refusal:
        raise Problem(f"it would be refused: {answer.refusal}", REFUSED)
    inform("It would be accepted.")


REFUSED = "Nothing was changed. Name fewer clients, forwarders or topics, or allow the topic somewhere else first."


class refusals_explained:
    """Turns a server's refusal of a rule or a drain into an error with advice."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, SyncpointError) and error.code is Code.FAILED_PRECONDITION:
            raise Problem(f"{error.code.name}: {error.message}", REFUSED) from error


def _some(names: list[str]) -> str:
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f", and {more:,} more" if more > 0 else "")


def _selectors(rule: Any) -> tuple[str, str, str]:
    return rule.clients, rule.forwarders, rule.topics


def _action(rule: Any) -> str:
    return str(rule.DESCRIPTOR.enum_types_by_name["Action"].values_by_number[rule.action].name)
