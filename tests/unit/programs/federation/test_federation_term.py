"""Programs that share a federation, over clusters that keep who runs it: whatever they reach, and whenever."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from syncpoint.catalog.metadata.shared_federations import SharedFederation
from syncpoint.programs.federation.federation_term import FederationTerm, TermAct, TermAnswer
from tests.kit.examples import examples

TTL = 15
PROGRAMS, CLUSTERS = ("p", "q", "r"), ("eu", "us")


class Installation:
    """Clusters with a clock each (seconds), and programs that reach some of them."""

    def __init__(self) -> None:
        self.now = 0
        self.records = dict.fromkeys(CLUSTERS, SharedFederation())
        self.terms = {name: FederationTerm(name) for name in PROGRAMS}
        self.reached = {name: set(CLUSTERS) for name in PROGRAMS}

    def round(self, name: str) -> None:
        term, answers = self.terms[name], {}
        for cluster in sorted(self.reached[name]):
            record = self.records[cluster]
            if term.act is TermAct.HOLD:
                record = record.held(name, term.term, TTL, self.now)
                self.records[cluster] = record
            answers[cluster] = TermAnswer(record.holder, record.term, max(0, record.until_ns - self.now))
        term.answered(answers)

    def calm(self) -> None:
        """Nothing fails for a while."""
        for _ in range(2 * TTL):
            self.now += 1
            if self.now % 5 == 0:
                for name in PROGRAMS:
                    self.round(name)

    @property
    def running(self) -> list[str]:
        return [name for name, term in self.terms.items() if term.running]


steps = st.lists(
    st.one_of(
        st.tuples(st.just("round"), st.sampled_from(PROGRAMS)),
        st.tuples(st.just("pass"), st.integers(1, TTL + 5)),
        st.tuples(st.just("reach"), st.sampled_from(PROGRAMS), st.sets(st.sampled_from(CLUSTERS))),
        st.tuples(st.just("dies"), st.sampled_from(PROGRAMS)),
        st.tuples(st.just("forgets"), st.sampled_from(CLUSTERS)),
    ),
    max_size=60,
)


@settings(max_examples=examples(300), deadline=None)
@given(steps)
def test_one_runs_once_all_reach_each_other(plan: list[tuple[object, ...]]) -> None:
    sites = Installation()
    for step in plan:
        match step:
            case ("round", str(name)):
                sites.round(name)
            case ("pass", int(seconds)):
                sites.now += seconds
            case ("reach", str(name), set(clusters)):
                sites.reached[name] = clusters
            case ("dies", str(name)):
                sites.terms[name] = FederationTerm(name)
            case ("forgets", str(cluster)):
                sites.records[cluster] = SharedFederation()
    sites.reached = {name: set(CLUSTERS) for name in PROGRAMS}
    sites.calm()
    (one,) = sites.running
    terms = {(record.holder, record.term) for record in sites.records.values()}
    assert terms == {(one, sites.terms[one].term)}
    for _ in range(3):
        sites.calm()
        assert sites.running == [one], "nobody takes over from one that renews"


def test_whoever_is_greater_wins_a_tie() -> None:
    sites = Installation()
    sites.round("p")
    sites.round("q")  # both saw nobody, and ask for term 1
    sites.round("p")
    sites.round("q")
    assert sites.running == ["p", "q"], "p has not heard of q yet"
    sites.round("p")
    assert sites.running == ["q"]
    assert sites.terms["p"].holder == "q"


def test_silence_changes_nothing() -> None:
    sites = Installation()
    sites.round("p")
    sites.round("p")
    sites.reached["p"] = set()
    sites.now += 10 * TTL
    sites.round("p")
    assert sites.terms["p"].running
    sites.round("q")
    sites.round("q")
    assert sites.terms["q"].term == 2
    sites.reached["p"] = {"us"}
    sites.round("p")
    assert sites.running == ["q"]


def test_a_holder_keeps_a_cluster_that_forgot_it() -> None:
    sites = Installation()
    sites.round("p")
    sites.round("p")
    sites.records["eu"] = SharedFederation()
    sites.round("q")
    assert sites.terms["q"].holder == "p", "the other cluster knows"
    sites.round("p")
    assert sites.records["eu"].holder == "p"


def test_what_was_given_back_is_taken_at_once() -> None:
    sites = Installation()
    sites.round("p")
    sites.round("p")
    for cluster, record in sites.records.items():
        sites.records[cluster] = record.held("p", 1, 0, sites.now)
    sites.round("q")
    sites.round("q")
    assert sites.terms["q"].running
    assert sites.records["eu"].held("p", 1, 0, sites.now) == sites.records["eu"], "only who holds it gives it back"
