"""The picture of a project: an SVG of its own, light or dark as its reader's screen.

Place: pure; `topology_flows` has the contents.
Layout: messages go from left to right. A topic stands to the right of all subscriptions that lead to it, unless that
goes round; a subscription to the right of its topic.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape

from syncpoint.base.model.names import project_of, short_id
from syncpoint.programs.topology.topology_flows import ProjectGraph, SubscriptionNode, TopicNode

WIDTH, HEIGHT, GAP_X, GAP_Y, MARGIN = 210, 58, 70, 22, 24
TEXT_MAX = 26

_STYLE = """
svg { font: 13px system-ui, sans-serif; background: #fff; color: #1c2530 }
.box { fill: #eef4fb; stroke: #3d6fa8; stroke-width: 1.3 } .sub { fill: #f4f1ea; stroke: #9a7b3c }
.edge { fill: none; stroke: #6b7785; stroke-width: 1.6 } .forward { stroke: #2b7a4b; stroke-width: 2.2 }
.letters { stroke: #b3452e; stroke-dasharray: 5 4 } .off { stroke: #b3452e; stroke-width: 2.4 }
text { fill: currentColor } .small { font-size: 11px; opacity: .75 } .name { font-weight: 600 }
@media (prefers-color-scheme: dark) {
  svg { background: #12161b; color: #dfe6ee }
  .box { fill: #1b2a3b; stroke: #6fa3dd } .sub { fill: #2b261b; stroke: #c9a55c }
  .edge { stroke: #93a0ae } .forward { stroke: #5fbf86 } .letters, .off { stroke: #e58a72 } }
"""


@dataclass(frozen=True)
class _Placed:
    column: int
    row: int

    @property
    def x(self) -> int:
        return MARGIN + self.column * (WIDTH + GAP_X)

    @property
    def y(self) -> int:
        return MARGIN + self.row * (HEIGHT + GAP_Y)


def drawn(graph: ProjectGraph) -> str:
    """The SVG document."""
    places = _places(graph)
    wide = max((one.x for one in places.values()), default=0) + WIDTH + MARGIN
    high = max((one.y for one in places.values()), default=0) + HEIGHT + MARGIN + 22
    home = next((project_of(name) for name in graph.subscriptions or graph.topics), "")
    size = f'viewBox="0 0 {wide} {high}" width="{wide}" height="{high}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
        f"<title>{escape(f'Topics and subscriptions of {home}')}</title><style>{_STYLE}</style>",
        _marker("flow", "#6b7785"),
        *(_edges(graph, places)),
        *(_topic(node, places[name], home) for name, node in graph.topics.items()),
        *(_subscription(node, places[name], home) for name, node in graph.subscriptions.items()),
        f'<text class="small" x="{MARGIN}" y="{high - 10}">green: forwards; dashed: dead letters; red frame: suspended;'
        " numbers: messages per second, and backlog</text>",
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _places(graph: ProjectGraph) -> dict[str, _Placed]:
    columns: dict[str, int] = dict.fromkeys(graph.topics, 0)
    for _ in range(len(graph.topics)):  # longest ways; those that go round are cut by the number of topics
        before = dict(columns)
        for node in graph.subscriptions.values():
            for target in (node.forward, node.letters):
                if target and target != node.topic and not _leads_to(graph, target, node.topic):
                    columns[target] = max(columns[target], columns.get(node.topic, 0) + 2)
        if columns == before:
            break
    rows: dict[int, int] = {}
    places: dict[str, _Placed] = {}
    for column in range(0, 2 + max(columns.values(), default=0), 2):
        here = [name for name in graph.topics if columns[name] == column]
        for topic in sorted(here, key=lambda name: (_first_row(graph, places, name), name)):
            row = rows.get(column, 0)
            places[topic] = _Placed(column, row)
            rows[column] = row + 1
            row = max(row, rows.get(column + 1, 0))
            for name in sorted(name for name, node in graph.subscriptions.items() if node.topic == topic):
                places[name] = _Placed(column + 1, row)
                row += 1
                rows[column + 1] = row
    return places


def _first_row(graph: ProjectGraph, places: dict[str, _Placed], topic: str) -> int:
    """The row of the first subscription that leads to a topic, of those that have a place."""
    found = (places[name].row for name, node in graph.subscriptions.items() if name in places and node.forward == topic)
    letters = (
        places[name].row for name, node in graph.subscriptions.items() if name in places and node.letters == topic
    )
    return min((*found, *letters), default=0)


def _leads_to(graph: ProjectGraph, begin: str, end: str) -> bool:
    """Whether messages of one topic come to another."""
    seen, open_ = {begin}, [begin]
    while open_:
        topic = open_.pop()
        if topic == end:
            return True
        for node in graph.subscriptions.values():
            for target in (node.forward, node.letters):
                if node.topic == topic and target and target not in seen:
                    seen.add(target)
                    open_.append(target)
    return False


def _edges(graph: ProjectGraph, places: dict[str, _Placed]) -> Iterator[str]:
    for name, node in graph.subscriptions.items():
        for begin, end, kind in (
            (node.topic, name, ""),
            (name, node.letters, " letters"),
            (name, node.forward, " forward"),
        ):
            if begin in places and end in places:
                yield _edge(places[begin], places[end], kind)


def _edge(begin: _Placed, end: _Placed, kind: str) -> str:
    x1, y1 = begin.x + WIDTH, begin.y + HEIGHT / 2 + (12 if kind == " letters" else 0)
    x2, y2 = end.x, end.y + HEIGHT / 2
    bend = GAP_X / 2 if x2 > x1 else GAP_X * 1.5
    way = f"M{x1} {y1:g} C{x1 + bend:g} {y1:g} {x2 - bend:g} {y2:g} {x2} {y2:g}"
    return f'<path class="edge{kind}" marker-end="url(#flow)" d="{way}"/>'


def _topic(node: TopicNode, at: _Placed, home: str) -> str:
    kind = "queue" if node.queue else "topic"
    rate = "" if node.rate is None else f"{node.rate:,.1f}/s in"
    return _box(at, "box" + " off" * node.suspended, kind, _name(node.name, home), rate, 6)


def _subscription(node: SubscriptionNode, at: _Placed, home: str) -> str:
    rate = "" if node.rate is None else f"{node.rate:,.1f}/s out, "
    kind = "subscription, filtered" if node.filtered else "subscription"
    return _box(
        at, "box sub" + " off" * node.suspended, kind, _name(node.name, home), f"{rate}{node.backlog:,} wait", 26
    )


def _box(at: _Placed, kind: str, what: str, name: str, numbers: str, round_: int) -> str:
    short = name if len(name) <= TEXT_MAX else name[: TEXT_MAX - 1] + "…"
    return (
        f'<g><title>{escape(name)}</title><rect class="{kind}" x="{at.x}" y="{at.y}" width="{WIDTH}" height="{HEIGHT}"'
        f' rx="{round_}"/><text class="small" x="{at.x + 16}" y="{at.y + 17}">{what}</text>'
        f'<text class="name" x="{at.x + 16}" y="{at.y + 33}">{escape(short)}</text>'
        f'<text class="small" x="{at.x + 16}" y="{at.y + 49}">{escape(numbers)}</text></g>'
    )


def _marker(name: str, colour: str) -> str:
    return (
        f'<defs><marker id="{name}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        f'<path d="M0 0 L8 4 L0 8 z" fill="{colour}"/></marker></defs>'
    )


def _name(full: str, home: str) -> str:
    """Short in its own project."""
    if not full.startswith("projects/"):
        return full
    project = project_of(full)
    return short_id(full) if project == home else f"{project.removeprefix('projects/')}/{short_id(full)}"
