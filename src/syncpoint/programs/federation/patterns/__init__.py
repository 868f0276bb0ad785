"""Patterns: what kinds of tasks there are. `registry` lists them."""
