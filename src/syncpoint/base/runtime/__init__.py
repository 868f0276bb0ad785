"""The environment: clock, randomness and files, as values that are handed in.

Place: just above the model and the kernel. Whatever decides is written against these protocols and therefore runs the
same under a simulated clock, a seeded generator or a failing disk.
"""
