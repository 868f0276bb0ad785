"""`syncpoint federation plan`: the links and flows that a file comes to, before anything moves.

Place: beside `federation`. Promise: it starts nothing, and prints where secrets are stored, never their values.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from syncpoint.programs.cli.errors import Problem
from syncpoint.programs.cli.federation_file import file_argument, load_file
from syncpoint.programs.cli.output import inform, print_answer, print_table
from syncpoint.programs.cli.settings import Settings, with_settings

if TYPE_CHECKING:
    from syncpoint.programs.federation.flow_plan import FederationLink, Flow


@click.command()
@file_argument
@click.option("--classes", is_flag=True, help="Compare the file with the classes that projects declare at its servers.")
@click.option("--write", type=click.Path(dir_okay=False, path_type=Path), help="With --classes: the namespaces needed.")
@with_settings
def plan(settings: Settings, file: Path, classes: bool, write: Path | None) -> None:
    """Show the links that a file defines, and their flows for the existing topics.

    With --classes, the exit code is 1 and each is named where a project's class needs a link that is not there, or
    refuses one that is; --write makes a file of the same servers with the namespaces that the classes need.

    \b
    Examples:
      syncpoint federation plan federation.yaml
      syncpoint federation plan federation.yaml --classes --write needed.yaml
    """
    if classes:
        _plan_classes(settings, file, write)
        return
    if write is not None:
        raise click.UsageError("--write needs --classes.")
    from syncpoint.programs.federation.flow_plan import absent_topics
    from syncpoint.programs.federation.servers import Servers

    _, links = load_file(file, conditions=True)
    with Servers() as servers:
        servers.able(links)
        flows = servers.flows(links)
    absent = [f"{task}: {why}" for task, why in absent_topics(links, flows).items()]
    shown = [link_dict(link) for link in links], [flow_dict(flow) for flow in flows]
    if print_answer(settings.format, {"links": shown[0], "flows": shown[1], "absent": absent}):
        return
    print_table(
        ["LINK", "PATTERN", "FROM", "TO", "PROJECT", "TOPICS", "ORIGINS", "CHANGES"],
        [
            [
                link.name,
                link.pattern,
                link.source.name,
                link.target.name,
                link.source_project or link.target_project,
                _topics(link),
                _origins(link),
                _changes(link),
            ]
            for link in links
        ],
    )
    click.echo()
    print_table(["FLOW", "READS", "WRITES"], [[one.name, one.source_topic, ", ".join(written(one))] for one in flows])
    for one in absent:
        inform(one)


def _plan_classes(settings: Settings, file: Path, write: Path | None) -> None:
    import yaml

    from syncpoint.base.model.yaml_text import load_yaml_file
    from syncpoint.programs.disaster.class_plan import Declared, plan_classes
    from syncpoint.programs.federation.servers import Servers
    from syncpoint.wire.protobuf.messages import admin

    found, links = load_file(file)
    declared: dict[str, dict[str, Declared]] = {}
    with Servers() as servers:
        for name, cluster in found.clusters.items():
            request, more = admin.ListClassedProjectsRequest(page_size=1000), True
            while more:
                answer = servers.call(cluster, "Admin.ListClassedProjects", request)
                for one in answer.projects:
                    made = Declared(one.disaster_class.name, one.disaster_class.writer)
                    declared.setdefault(one.project, {})[name] = made
                request.page_token, more = answer.next_page_token, bool(answer.next_page_token)
    planned = plan_classes(declared, links)
    if write is not None:
        content = {"version": 1, "clusters": load_yaml_file(file)["clusters"], "namespaces": planned.namespaces()}
        write.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    if not print_answer(settings.format, {"namespaces": planned.namespaces(), "amiss": planned.amiss}):
        rows = [
            [project, next(iter(sites.values())).name, ", ".join(f"{one}-{other}" for one, other in pairs)]
            for project, sites in sorted(declared.items())
            if (pairs := planned.needed.get(project, [])) or sites
        ]
        print_table(["PROJECT", "CLASS", "LINKS NEEDED"], rows)
        for line in planned.amiss:
            inform(line)
    if planned.amiss:
        advice = "`syncpoint federation plan --classes --write FILE` makes a file of what is needed."
        raise Problem(f"{file} is not what the declared classes need.", advice)


def _origins(link: FederationLink) -> str:
    if link.origins is None:
        return "all"
    return ", ".join(one or link.source.name for one in link.origins)


def _topics(link: FederationLink) -> str:
    found = ", ".join(link.topics)
    return f"{found} [{', '.join(map(str, link.partitions))}]" if link.partitions else found


def _changes(link: FederationLink) -> str:
    change = link.change
    parts = [f"rule {rule.filter or '1=1'}{f' -> {rule.action}' if rule.action else ''}" for rule in change.rules]
    parts += [f"where {change.where}"] if change.where else []
    parts += [f"{name} = {value}" for name, value in change.select.items()]
    parts += [change.python] if change.python else []
    return "; ".join([*parts, link.steps.summary] if link.steps else parts)


def link_dict(link: FederationLink) -> dict[str, Any]:
    return {
        "name": link.name,
        "pattern": link.pattern,
        "source": {"cluster": link.source.name, "endpoint": link.source.endpoint, "project": link.source_project},
        "target": {"cluster": link.target.name, "endpoint": link.target.endpoint, "project": link.target_project},
        "topics": list(link.topics),
        "partitions": list(link.partitions),
        "origins": None if link.origins is None else [one or link.source.name for one in link.origins],
        "rules": [dataclasses.asdict(rule) for rule in link.change.rules],
        "where": link.change.where,
        "select": dict(link.change.select),
        "python": link.change.python,
        "steps": link.steps.summary,
        "otherTopics": list(link.steps.topics),
    }


def flow_dict(flow: Flow) -> dict[str, Any]:
    return {"name": flow.name, "link": flow.link.name, "reads": flow.source_topic, "writes": written(flow)}


def written(flow: Flow) -> list[str]:
    """The topics that a flow's messages may go to."""
    own = [] if flow.link.steps.diverts else [flow.target_topic]
    return [*own, *(topic for topic in flow.link.steps.topics if topic not in own)]
