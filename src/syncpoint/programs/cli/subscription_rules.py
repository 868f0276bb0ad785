"""`syncpoint rules ...`: rules of subscriptions, and what they make of a message.

Place: calls of syncpoint.admin.v1.Admin; `test` of a rule that is given needs no server. The language is explained in
docs/service-bus.md.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from syncpoint.programs.cli.help_text import Group
from syncpoint.programs.cli.names import names, others
from syncpoint.programs.cli.output import inform, print_answer, print_table, without_empty_columns
from syncpoint.programs.cli.settings import Settings, with_settings
from syncpoint.programs.cli.values import parse_pairs

subscription_option = click.option(
    "--subscription",
    required=True,
    shell_complete=names("subscriptions"),
    help="The subscription that the rule belongs to.",
)
all_option = click.option(
    "--all-messages",
    is_flag=True,
    help="Apply the change to stored, unacknowledged messages too, not only to new ones.",
)


@click.group(cls=Group)
def rules() -> None:
    """Say by SQL which messages a subscription gets.

    All rules without an action select messages together; each rule with an action makes a copy of its own of what it
    selects, with the attribute RuleName. A new subscription has the rule $Default, which selects all.
    """


def _rule_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option(
            "--parameter",
            "parameters",
            multiple=True,
            metavar="NAME=VALUE",
            help="Value of @NAME, as in JSON, or text.",
        ),
        click.option("--action", default="", metavar="SQL", help='The action, such as "SET replicated = 1".'),
        click.option(
            "--correlation",
            multiple=True,
            metavar="NAME=VALUE,...",
            help="Attributes that must be equal, instead of --filter.",
        ),
        click.option("--filter", "sql", metavar="SQL", help="Filter of the rule; the default selects all messages."),
    ):
        command = option(command)
    return command


def rule_of(name: str, sql: str | None, correlation: tuple[str, ...], action: str, parameters: tuple[str, ...]) -> Any:
    """The rule that options describe, an admin.v1.Rule."""
    from syncpoint.wire.protobuf.messages import admin

    if sql is not None and correlation:
        raise click.UsageError("Give either --filter or --correlation.")
    rule = admin.Rule(name=name, action=action)
    if correlation:
        rule.correlation.properties.update(parse_pairs(correlation, "--correlation"))
    else:
        rule.sql = "1=1" if sql is None else sql
    for key, text in parse_pairs(parameters, "--parameter").items():
        _fill(rule.parameters[key], text)
    return rule


def _fill(parameter: Any, text: str) -> None:
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    match value:
        case None:
            pass
        case bool():
            parameter.truth = value
        case int() if -(1 << 63) <= value < 1 << 63:
            parameter.integer = value
        case float() if value - value == 0:
            parameter.number = value
        case _:
            parameter.text = value if isinstance(value, str) else text


@rules.command()
@click.argument("name")
@subscription_option
@_rule_options
@all_option
@with_settings
def create(settings: Settings, name: str, subscription: str, all_messages: bool, **rule: Any) -> None:
    """Create a rule of a subscription. Delete the rule $Default, which selects every message, if you want only the
    messages that your rules select.

    \b
    Examples:
      syncpoint rules create eu --subscription billing --filter "region = 'eu' AND total > 100"
      syncpoint rules create loop --subscription west --filter "replicated IS NULL" --action "SET replicated = 1"
      syncpoint rules delete '$Default' --subscription billing
    """
    from syncpoint.wire.protobuf.messages import admin

    request = admin.CreateRuleRequest(
        subscription=settings.name("subscriptions", subscription),
        rule=rule_of(name, **rule),
        scope=_scope(all_messages),
    )
    made = settings.call("Admin.CreateRule", request)
    inform(f"Created rule [{name}].")
    print_answer(settings.format, made)


@rules.command()
@click.argument("name", shell_complete=others("rules"))
@subscription_option
@_rule_options
@all_option
@with_settings
def update(settings: Settings, name: str, subscription: str, all_messages: bool, **rule: Any) -> None:
    """Replace a rule.

    \b
    Example:
      syncpoint rules update large --subscription billing --filter "amount > 500"
    """
    from syncpoint.wire.protobuf.messages import admin

    request = admin.UpdateRuleRequest(
        subscription=settings.name("subscriptions", subscription),
        rule=rule_of(name, **rule),
        scope=_scope(all_messages),
    )
    made = settings.call("Admin.UpdateRule", request)
    inform(f"Updated rule [{name}].")
    print_answer(settings.format, made)


@rules.command("list")
@subscription_option
@with_settings
def list_all(settings: Settings, subscription: str) -> None:
    """List the rules of a subscription.

    \b
    Example:
      syncpoint rules list --subscription billing
    """
    from syncpoint.wire.protobuf.messages import admin

    request = admin.ListRulesRequest(subscription=settings.name("subscriptions", subscription))
    found = settings.call("Admin.ListRules", request).rules
    rows = [[one.name, _filter_text(one), one.action, _parameters(one)] for one in found]
    print_answer(settings.format, found, *without_empty_columns(["NAME", "FILTER", "ACTION", "PARAMETERS"], rows))


@rules.command()
@click.argument("name", nargs=-1, required=True, shell_complete=others("rules"))
@subscription_option
@all_option
@with_settings
def delete(settings: Settings, name: tuple[str, ...], subscription: str, all_messages: bool) -> None:
    """Delete rules. A subscription without rules gets nothing.

    \b
    Example:
      syncpoint rules delete large --subscription billing
    """
    from syncpoint.wire.protobuf.messages import admin

    with settings.client() as client:
        for one in name:
            request = admin.DeleteRuleRequest(
                subscription=settings.name("subscriptions", subscription), name=one, scope=_scope(all_messages)
            )
            client.call("Admin.DeleteRule", request)
            inform(f"Deleted rule [{one}].")


@rules.command()
@click.option(
    "--subscription",
    shell_complete=names("subscriptions"),
    help="Test this subscription's rules, or a rule in its context.",
)
@_rule_options
@click.option("--attribute", "attributes", multiple=True, metavar="KEY=VALUE,...", help="Attributes of the message.")
@click.option("--data", default="", help="Data of the message.")
@click.option(
    "--message", "file", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="The message, as JSON."
)
@click.option(
    "--schema", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Avro definition of the data."
)
@click.option("--explain", is_flag=True, help="Show the result of each part of the filters.")
@with_settings
def test(
    settings: Settings,
    subscription: str | None,
    attributes: tuple[str, ...],
    data: str,
    file: Path | None,
    schema: Path | None,
    explain: bool,
    **rule: Any,
) -> None:
    """Test a rule on a message: show whether it is selected, and the resulting copy. Exit code 1 if it is not selected.
    Without --subscription no server is contacted. Here the filter may also name fields of the data, as body.NAME; rules
    of a subscription see attributes only. With --subscription and no --filter, --correlation or --action, the
    subscription's own rules are tested.

    \b
    Examples:
      syncpoint rules test --filter "total > 100" --attribute total=99.5 --explain
      syncpoint rules test --filter "body.total > 100" --data '{"total": 120}'
      syncpoint rules test --subscription billing --message message.json --explain
    """
    from syncpoint.wire.protobuf.messages import admin

    message = _message(file, parse_pairs(attributes, "--attribute"), data)
    given = bool(rule["sql"] is not None or rule["correlation"] or rule["action"])
    if subscription is None:
        answer = _tried_here(rule_of("", **rule), message, schema, explain)
    else:
        if schema is not None:
            raise click.UsageError("With --subscription, the topic's schema applies.")
        request = admin.TestRuleRequest(
            subscription=settings.name("subscriptions", subscription), message=message, explain=explain
        )
        if given:
            request.rule.CopyFrom(rule_of("", **rule))
        answer = settings.call("Admin.TestRule", request)
    if not print_answer(settings.format, answer):
        several = len({one.rule for one in answer.parts}) > 1
        rows = [[one.rule if several else "", "  " * one.depth + one.text, one.result] for one in answer.parts]
        print_table(*without_empty_columns(["RULE", "PART", "RESULT"], rows))
        for copy in answer.copies:
            shown = ", ".join(f"{key}={value}" for key, value in sorted(copy.attributes.items()))
            inform(f"Selected; attributes: {shown or '(none)'}")
    if not answer.selected:
        inform("Not selected.")
        raise click.exceptions.Exit(1)


def _message(file: Path | None, attributes: dict[str, str], data: str) -> Any:
    """The message that options describe: a file of a PubsubMessage as JSON has it, and what is given beside it."""
    from google.protobuf.json_format import ParseDict, ParseError

    from syncpoint.wire.protobuf.messages import pubsub

    message = pubsub.PubsubMessage()
    if file is not None:
        try:
            ParseDict(json.loads(file.read_text()), message)
        except (ValueError, ParseError) as error:
            raise click.BadParameter(f"{file} is not a message in JSON: {error}", param_hint="--message") from None
    message.attributes.update(attributes)
    if data:
        message.data = data.encode()
    return message


def _tried_here(rule: Any, message: Any, schema: Path | None, explain: bool) -> Any:
    from syncpoint.base.rules.trial import json_fields
    from syncpoint.front.api.rule_admin import checked, tried

    if schema is None:
        return tried([checked(rule, body=True)], message, json_fields(message.data) or {}, explain=explain)
    from syncpoint.catalog.schemas import avro
    from syncpoint.catalog.schemas.errors import BadDefinition, Mismatch

    try:
        fields = avro.decoded(schema.read_text(), message.data)
    except BadDefinition as error:
        raise click.BadParameter(str(error), param_hint="--schema") from None
    except Mismatch as error:
        raise click.BadParameter(f"the data do not match {schema}: {error}", param_hint="--message") from None
    body = fields if isinstance(fields, dict) else {}
    return tried([checked(rule, body=True)], message, body, explain=explain)


def _scope(all_messages: bool) -> int:
    from syncpoint.wire.protobuf.messages import admin

    return int(admin.RuleScope.Value("ALL_MESSAGES") if all_messages else admin.RuleScope.Value("NEW_MESSAGES"))


def _filter_text(rule: Any) -> str:
    if rule.HasField("correlation"):
        return " AND ".join(f"{name} is {text!r}" for name, text in sorted(rule.correlation.properties.items()))
    return str(rule.sql)


def _parameters(rule: Any) -> str:
    def shown(parameter: Any) -> str:
        kind = parameter.WhichOneof("value")
        return "null" if kind is None else json.dumps(getattr(parameter, kind))

    return ", ".join(f"@{name}={shown(one)}" for name, one in sorted(rule.parameters.items()))
