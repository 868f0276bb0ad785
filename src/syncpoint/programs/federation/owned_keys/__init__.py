"""Regions own keys: each ordering key of a subscription is delivered at one site at a time."""
