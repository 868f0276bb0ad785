"""Measurements of the server: one file per question, one harness, one load generator.

`python -m bench` runs the quick set, `python -m bench --all` everything, `python -m bench.NAME` one question,
`python -m bench.peers` the comparison with other brokers. Method: bench/README.md; figures: docs/performance.md.
"""
