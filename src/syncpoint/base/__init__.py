"""The base: what every other wing may use.

The model of names and limits, clocks and child processes, the compiled kernel, conditions and traces.
"""
