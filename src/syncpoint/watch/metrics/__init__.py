"""Metrics: what a process counts, in the format of Prometheus, from one table of families (see DESIGN.md)."""
