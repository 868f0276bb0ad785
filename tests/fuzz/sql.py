"""Texts that are nearly rules against the parser of rules, and what it lets pass against messages.

    python -m tests.fuzz.sql --seconds 20 --seed 1     # the same seed gives the same inputs

An input is a few rules spliced, with words left out, repeated, moved or changed, and letters of any kind put in; or it
is deep, or long. Whatever it is: it is refused by `InvalidArgument` or has an outcome for each message, within
`LONGEST_S` of processor time, and the outcome is the same a second time.
"""

from __future__ import annotations

import argparse
import random
import re
import time

from syncpoint.base.model.errors import InvalidArgument
from syncpoint.base.rules.explain import explain
from syncpoint.base.rules.sql_compile import compile_action, compile_filter
from syncpoint.base.rules.sql_parser import TEXT_MAX, parse_action, parse_filter
from syncpoint.base.rules.sql_values import RuleError
from syncpoint.base.rules.system_properties import RuleMessage

LONGEST_S = 1.0
RULES = [
    "replicated IS NULL OR replicated <> 1",
    "NOT EXISTS(a) AND user.b IN (1, 2.5, 'x', NULL) OR NOT (c LIKE '%a_b!%' ESCAPE '!')",
    "sys.Label = 'x''y' AND [a b]]c] >= -1e3 AND \"q\"\"r\" < @limit",
    "sys.EnqueuedTimeUtc + '0:1:0' < sys.ExpiresAtUtc AND sys.SequenceNumber % 2 = 0",
    "p('a' + b) IS NULL OR property(a) * (2 + 3) / b - 1 = 4 AND TRUE <> FALSE",
    "a NOT IN (b, c) AND a NOT LIKE b AND newid() <> newid()",
    "SET quantity = quantity / 2; REMOVE priority; SET sys.CorrelationId = 'low';",
    "set replicated = 1, set [x y] = 'a' + b, remove user.c",
    "set sys.TimeToLive = '0:2:0'; set b = -a % 7.5; set a = newid()",
]
MESSAGES = [
    RuleMessage({}),
    RuleMessage({"a": "1", "b": "2.5", "c": "a%b", "quantity": "9", "replicated": "1"}, "7", "key", 10**18, 5),
    RuleMessage({"A": "true", "a": "x", "b": "", "sys.TimeToLive": "0:2:0", "c": "%" * 300}, "8", "", 10**18, 6),
]
WORD = re.compile(r"\w+|'(?:[^']|'')*'|\s+|.", re.DOTALL)
WORDS = [word for rule in RULES for word in WORD.findall(rule)]


def nearly(rng: random.Random) -> str:
    """An input."""
    kind = rng.randrange(20)
    if kind == 0:
        opening, closing = rng.choice(
            [("(", ")"), ("NOT ", ""), ("-", ""), ("(a=1 AND ", ")"), ("1+(", ")"), ("p(", ")")]
        )
        deep = rng.choice([3, 60, 70, 200])
        return (opening * deep + rng.choice(["1=1", "a", "1"]) + closing * deep)[: TEXT_MAX + 5]
    if kind == 1:
        return (rng.choice([" OR ", " AND ", "+", ",", ";"]).join([rng.choice(RULES)] * 40))[: TEXT_MAX + 1]
    if kind == 2:
        return f"c LIKE '{'%a' * rng.randrange(200)}b{'%_' * rng.randrange(200)}'"
    words = [word for rule in rng.sample(RULES, rng.choice([1, 1, 2])) for word in WORD.findall(rule)]
    for _ in range(rng.choice([0, 1, 1, 2, 5])):
        at = rng.randrange(len(words))
        match rng.randrange(4):
            case 0:
                words[at] = rng.choice(WORDS)
            case 1:
                words[at] = "".join(chr(rng.choice([rng.randrange(128), rng.randrange(0x3000)])) for _ in range(3))
            case 2:
                words[at] *= rng.choice([0, 2, 2, 30])
            case _:
                words.insert(at, words[rng.randrange(len(words))])
    return "".join(words)


def tried(text: str) -> bool:
    """Whether the text is a rule. Raises whatever it should not; AssertionError for two outcomes."""
    parameters = {"limit": 3}
    good = False
    try:
        node = parse_filter(text)
        evaluate = compile_filter(node, parameters)
        good = True
        for message in MESSAGES:
            outcomes: list[bool | str | None] = []
            for _ in range(2):
                try:
                    outcomes.append(evaluate(message, str))
                except RuleError as error:
                    outcomes.append(f"fails: {error}")
            assert outcomes[0] == outcomes[1]
        explain(text, node, MESSAGES[1], str, parameters)
    except InvalidArgument:
        pass
    try:
        act = compile_action(parse_action(text), parameters)
        good = True
        for message in MESSAGES:
            try:
                assert act(message, str) == act(message, str)
            except RuleError:
                continue
    except InvalidArgument:
        pass
    return good


def run(inputs: int, seed: int, seconds: float = 1e9) -> tuple[int, int, float]:
    """How many texts there were, how many of them were rules, and what the worst took."""
    rng, ends, rules, longest = random.Random(seed), time.monotonic() + seconds, 0, 0.0
    for done in range(inputs):
        text = nearly(rng)
        start = time.thread_time()
        try:
            rules += tried(text)
        except BaseException:
            print(f"seed {seed}, input {done}: {text!r}")
            raise
        longest = max(longest, time.thread_time() - start)
        if time.monotonic() > ends:
            return done + 1, rules, longest
    return inputs, rules, longest


def main() -> None:
    """Run for a time."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    texts, rules, longest = run(1 << 60, options.seed, options.seconds)
    print(f"{texts} texts, {rules} of them rules; the longest took {longest * 1000:.0f} ms")
    if longest > LONGEST_S:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
