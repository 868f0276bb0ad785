"""Named checkers of what pipelines promise, asked once all is quiet. Each lists every place where it was broken.

Beside those of `run_checkers`. What a reader was handed range by range, and what became visible too early, is judged
where it is read (`pipeline_calls`, `spark`, `pipeline_runs`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from syncpoint.testing.rigs.checkers import CheckResult
from syncpoint.testing.rigs.history import History, MessageIdentity, Outcome, unseal
from syncpoint.testing.simulation.pipeline_history import CommitCall, PipelineHistory, Row, SourcePlace
from syncpoint.testing.simulation.simulated_jobs import LINK
from syncpoint.testing.simulation.spark import passes


class FoundRow(NamedTuple):
    """One visible row."""

    topic: str
    place: SourcePlace
    row: Row


Rows = Sequence[FoundRow]  # topic by topic, each in its order


def _is_link(query: str) -> bool:
    return query.startswith(LINK)


def _rows_of(pipelines: PipelineHistory, attempts: Sequence[str]) -> dict[str, list[Row]]:
    """What these attempts staged, by topic, in the order in which it becomes visible."""
    found: dict[str, list[Row]] = defaultdict(list)
    for name in attempts:
        for topic, rows in pipelines.attempts[name].rows.items():
            found[topic] += rows
    return {topic: rows for topic, rows in found.items() if rows}


def epochs_are_whole(pipelines: PipelineHistory, rows: Rows) -> CheckResult:
    """An epoch of a query is visible whole, in all its topics, once and in the order of its stages: that of one commit
    that was asked for; what was reported to be committed is there.
    """
    visible: dict[tuple[str, int], dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for topic, _, row in rows:
        if not _is_link(row.query):
            visible[row.query, row.epoch][topic].append(row)
    asked: dict[tuple[str, int], list[CommitCall]] = defaultdict(list)
    for commit in pipelines.commits:
        if not commit.link:
            asked[commit.query, commit.epoch].append(commit)
    bad = []
    for key in sorted({*visible, *asked}):
        mine = {topic: found for topic, found in visible[key].items() if found}
        wanted = [_rows_of(pipelines, commit.attempts) for commit in asked[key]]
        answered = [commit for commit in asked[key] if commit.result is not None]
        if mine and mine not in wanted:
            bad.append(f"epoch {key[1]} of {key[0]} is visible as no commit named it: {_counts(mine)}")
        for commit in answered:
            own = _rows_of(pipelines, commit.attempts)
            if not commit.result.repeated_epoch and own != mine:
                bad.append(f"epoch {key[1]} of {key[0]} was reported as committed and is {_counts(mine)}")
            count = sum(map(len, mine.values()))
            if commit.result.rows != count:
                bad.append(f"epoch {key[1]} of {key[0]}: {commit.result.rows} rows were reported, {count} are there")
        if answered and not mine and all(wanted):
            bad.append(f"epoch {key[1]} of {key[0]} was reported as committed, and nothing is there")
    return CheckResult("epochs are whole", len(asked), tuple(bad))


def _counts(rows: Mapping[str, Sequence[Row]]) -> str:
    return ", ".join(
        f"{topic.rpartition('/')[2]} {Counter(row.attempt for row in found)}" for topic, found in rows.items()
    )


def epochs_in_order(rows: Rows) -> CheckResult:
    """Within a topic the epochs of a query follow each other, and the rows of a link do, source by source."""
    bad = []
    last: dict[tuple[str, ...], int] = {}
    for topic, place, row in rows:
        link = _is_link(row.query)
        key = (topic, str(row.place.source)) if link else (topic, row.query)
        number = row.place.offset if link else row.epoch
        before = last.get(key, -1)
        if number < before or (link and number == before):
            bad.append(f"{topic}: {row} at {place} comes after {before}")
        last[key] = number
    return CheckResult("epochs in order", len(rows), tuple(bad))


def nothing_else_is_visible(pipelines: PipelineHistory, rows: Rows) -> CheckResult:
    """Every visible row was staged as it is, for this topic, by an attempt that a commit named."""
    named = {attempt for commit in pipelines.commits for attempt in commit.attempts}
    bad = []
    for topic, place, row in rows:
        attempt = pipelines.attempts.get(row.attempt)
        if attempt is None or row not in attempt.rows.get(topic, ()):
            bad.append(f"{topic} {place}: nobody staged {row}")
        elif row.attempt not in named:
            bad.append(f"{topic} {place}: no commit named the attempt of {row}")
    return CheckResult("nothing else is visible", len(rows), tuple(bad))


def results_are_true(pipelines: PipelineHistory, rows: Rows) -> CheckResult:
    """What a commit was answered of where its rows lie is where they lie."""
    at = {(topic, place): row for topic, place, row in rows}
    bad, checked = [], 0
    for commit in pipelines.commits:
        if commit.result is None or commit.result.repeated_epoch:
            continue
        checked += 1
        for topic, place in _places(commit.result.stored):
            found = at.get((topic, place))
            if found is None or found.attempt not in commit.attempts:
                bad.append(
                    f"epoch {commit.epoch} of {commit.query} lies at {topic} {place}, as answered; there is {found}"
                )
    return CheckResult("results are true", checked, tuple(bad))


def _places(stored: Sequence[Any]) -> Iterator[tuple[str, SourcePlace]]:
    for one in stored:
        for offset in range(one.begin, one.end):
            yield one.topic, SourcePlace(one.source, offset)


def older_runs_are_fenced(pipelines: PipelineHistory) -> CheckResult:
    """Once a run has been answered, one that had been answered before it began may do nothing any more."""
    done = [one for one in pipelines.spoken if one.ended]
    first_begun: dict[tuple[str, str], int] = {}
    first_ended: dict[tuple[str, str], int] = {}
    for one in pipelines.spoken:
        first_begun.setdefault((one.query, one.run), one.begun)
    for one in sorted(done, key=lambda one: one.ended):
        first_ended.setdefault((one.query, one.run), one.ended)
    bad = []
    for one in done:
        mine = first_ended[one.query, one.run]
        for (query, run), ended_at in first_ended.items():
            later = query == one.query and first_begun[query, run] > mine
            if later and ended_at < one.begun:
                bad.append(f"{one.method} of {one.query} for {one.run} was done although {run} had begun")
    return CheckResult("older runs are fenced", len(done), tuple(sorted(set(bad))))


def links_copy_once(pipelines: PipelineHistory, rows: Rows, links: Sequence[Any]) -> CheckResult:
    """A link has every message of what was planned, that it does not leave out, exactly once; and none beside it. What
    somebody accepted as a gap it need not have.
    """
    bad, there = [], Counter(row.place for _, _, row in rows if _is_link(row.query))
    bad += [f"{place} was copied {count} times" for place, count in there.items() if count > 1]
    answered: set[SourcePlace] = set()
    asked: set[SourcePlace] = set()
    for commit in pipelines.commits:
        for source, begin, end in commit.planned:
            planned = {SourcePlace(source, offset) for offset in range(begin, end)}
            asked |= planned
            answered |= planned if commit.result is not None else set()
    accepted = {SourcePlace(gap.source, offset) for link in links for gap in link.skipped
                for offset in range(gap.begin, gap.end)}  # fmt: skip
    for place in sorted(answered - accepted):
        body = pipelines.data.get(place)
        if body is None:
            bad.append(f"{place} was planned and committed, and nobody has read it")
        elif passes(body) and place not in there:
            bad.append(f"{place} was planned and committed, and is not there")
    bad += [f"{place} is there and was never planned" for place in there if place not in asked]
    for source in {place.source for place in answered}:
        offsets = [place.offset for place in answered if place.source == source]
        between = {SourcePlace(source, offset) for offset in range(min(offsets), max(offsets))}
        bad += [f"{place} was left out without a word" for place in sorted(between - asked - accepted)]
    return CheckResult("links copy once", len(answered), tuple(bad))


def links_count(pipelines: PipelineHistory, rows: Rows, links: Sequence[Any]) -> CheckResult:
    """A link reports of itself what it did."""
    if not links:
        return CheckResult("links count", 0, ())
    (link,) = links
    there = sum(_is_link(row.query) for _, _, row in rows)
    commits = [commit for commit in pipelines.commits if commit.link]
    answered = sum(commit.result is not None and not commit.result.repeated_epoch for commit in commits)
    open_ = {(commit.query, commit.epoch, commit.attempts) for commit in commits if commit.result is None}
    # A proxy asks again by itself; the first answer is then that of a repeated epoch.
    known = {(one.query, one.epoch) for one in commits if one.result is None or not one.result.repeated_epoch}
    open_ |= {(one.query, one.epoch, ()) for one in commits if (one.query, one.epoch) not in known}
    bad = []
    if link.rows != there:
        bad.append(f"the link says {link.rows} rows, {there} are there")
    if not answered <= link.epochs <= answered + len(open_):
        bad.append(f"the link says {link.epochs} epochs, {answered} were reported and {len(open_)} may be")
    for one in link.committed:
        ends = [end for c in commits if c.result is not None for source, _, end in c.planned if source == one.source]
        if one.end < max(ends, default=0):
            bad.append(f"the link is at {one.end} of source {one.source}, {max(ends)} was reported")
    return CheckResult("links count", max(1, there), tuple(bad))


def copies_are_mapped(rows: Rows, mapped: Mapping[SourcePlace, tuple[str, SourcePlace]]) -> CheckResult:
    """A link reports the places of all of its copies."""
    there = {row.place: (topic, place) for topic, place, row in rows if _is_link(row.query)}
    bad = [f"{place} lies at {where}, the link says {mapped.get(place)}" for place, where in there.items()
           if mapped.get(place) != where]  # fmt: skip
    bad += [f"{place} is mapped and not there" for place in mapped if place not in there]
    return CheckResult("copies are mapped", len(there), tuple(bad))


def resets_are_read_again(history: History, pipelines: PipelineHistory, rows: Rows, generation: int) -> CheckResult:
    """Who reads a subscription alone gets, after the last seek, everything that this left unacknowledged; without any,
    everything published since the subscription was there.
    """
    queries = {reader.query for reader in pipelines.readers if reader.generation == generation}
    read: set[MessageIdentity | None] = set()
    for _, _, row in rows:
        if row.query in queries and row.place in pipelines.data:
            read.add(unseal(pipelines.data[row.place]))
    since = 0
    last = pipelines.seeks[-1] if pipelines.seeks else None
    if last is not None and not last.back:
        since = last.begun if last.kept else last.ended  # what was acknowledged by then is not brought back
    owed = [one for one in history.publishes if one.outcome is Outcome.OK and one.begun > since]
    bad = [f"{one.identity} was not read again after seek {generation}" for one in owed if one.identity not in read]
    return CheckResult("resets are read again", len(owed), tuple(bad))


def everything_is_read(
    history: History, pipelines: PipelineHistory, rows: Rows, began: Mapping[str, int]
) -> CheckResult:
    """A query has read whatever was published since it began. `began`: by query, the stamp when it had learned where
    it begins.
    """
    bad, looked = [], 0
    for query, stamp in began.items():
        if _is_link(query):
            answered = [one for one in pipelines.commits if one.query == query and one.result is not None]
            places = {
                SourcePlace(one[0], at) for commit in answered for one in commit.planned for at in range(one[1], one[2])
            }
        else:
            places = {row.place for _, _, row in rows if row.query == query}
        read = {unseal(pipelines.data[place]) for place in places if place in pipelines.data}
        owed = [one for one in history.publishes if one.outcome is Outcome.OK and one.begun > stamp]
        looked += len(owed)
        bad += [f"{one.identity} was not read by {query}" for one in owed if one.identity not in read]
    return CheckResult("everything is read", looked, tuple(bad))


def stays(before: Mapping[str, Any], after: Mapping[str, Any]) -> CheckResult:
    """What was there when all was quiet is there after a restart, too."""
    bad = [
        f"{name} was {known}, and is {after.get(name)}" for name, known in before.items() if known != after.get(name)
    ]
    return CheckResult("a restart changes nothing", len(before), tuple(bad))
