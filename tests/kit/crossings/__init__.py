"""The table of crossings: what acts on messages, what happens to them, and a ledger that judges each pair.

`features` are the rows, `events` the columns, `cell` runs one pair over official clients, and `table` says which pairs
are tested, refused by the server, or impossible; `tests/integration/crossings.md` is written from it.
"""
