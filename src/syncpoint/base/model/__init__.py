"""The words of the product: names, message ids, limits and errors.

Place: the lowest room; it imports nothing of the project, and every other room may import it.
Promise: pure values, no clock, no randomness, no input or output.
"""
