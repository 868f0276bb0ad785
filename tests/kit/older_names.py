"""What is said of a property of the system that publishers set under two names: for each reader of rules the same."""

from __future__ import annotations

Attributes = dict[str, str]

HELD: list[Attributes] = [
    {},
    {"sys.Subject": "a"},
    {"sys.Label": "a"},
    {"SYS.label": "a"},
    {"sys.Subject": "b", "sys.Label": "a"},
    {"sys.SUBJECT": "a", "sys.Label": "b"},
    {"sys.Subject": "", "sys.Label": "a"},
    {"sys.Label": "5"},
    {"Label": "a", "Subject": "a"},
]
SELECTED: dict[str, list[int]] = {  # by filter, the numbers of those that it selects
    "{} = 'a'": [1, 2, 3, 5],
    "'a' = {}": [1, 2, 3, 5],
    "{} <> 'a'": [4, 6, 7],
    "NOT {} = 'a'": [4, 6, 7],
    "{} IS NULL": [0, 8],
    "{} IS NOT NULL": [1, 2, 3, 4, 5, 6, 7],
    "EXISTS({})": [1, 2, 3, 4, 5, 6, 7],
    "NOT EXISTS({})": [0, 8],
    "{} LIKE 'a%'": [1, 2, 3, 5],
    "{} NOT LIKE 'a%'": [4, 6, 7],
    "{} IN ('b', 'a')": [1, 2, 3, 4, 5],
    "'b' IN ({}, 'c')": [4],
    "{} NOT IN ('b')": [1, 2, 3, 5, 6, 7],
    "{} > 4": [7],
    "{} = 5 OR {} = 'b' AND 1=1": [4, 7],
    "{} = [sys.Label]": [2, 3, 7],
    "{} = sys.Subject": [1, 2, 3, 4, 5, 6, 7],
    "[sys.Label] = 'a'": [2, 3, 4, 6],
    "user.[sys.Subject] = 'a'": [1, 5],
}
LEFT: list[tuple[str, Attributes, Attributes]] = [  # an action, and what it makes of attributes
    ("SET {} = 'y'", {}, {"sys.Subject": "y"}),
    ("SET {} = 'y'", {"sys.Subject": "x"}, {"sys.Subject": "y"}),
    ("SET {} = 'y'", {"sys.Label": "x"}, {"sys.Label": "y"}),
    ("SET {} = 'y'", {"SYS.label": "x"}, {"SYS.label": "y"}),
    ("SET {} = 'y'", {"sys.Subject": "x", "sys.Label": "z"}, {"sys.Subject": "y"}),
    ("SET {} = 'y'", {"SYS.subject": "x", "sys.Label": "z", "n": "1"}, {"SYS.subject": "y", "n": "1"}),
    ("SET {} = {} + '!'", {"sys.Label": "x"}, {"sys.Label": "x!"}),
    ("SET copy = {}", {"sys.Label": "x"}, {"sys.Label": "x", "copy": "x"}),
    ("SET {} = missing", {"sys.Subject": "x", "sys.Label": "z"}, {}),
    ("REMOVE {}", {"sys.Subject": "x", "sys.label": "z", "n": "1"}, {"n": "1"}),
    ("REMOVE {}; SET {} = 'y'", {"sys.Label": "z"}, {"sys.Subject": "y"}),
    ("SET [sys.Label] = 'y'", {"sys.Subject": "x"}, {"sys.Subject": "x", "sys.Label": "y"}),
    ("REMOVE [sys.Subject]", {"sys.Subject": "x", "sys.Label": "z"}, {"sys.Label": "z"}),
]
NAMES = ("sys.Label", "sys.Subject", "SYS.LABEL")
