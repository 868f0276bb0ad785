"""Rollouts: another version or configuration goes from test to all of production, watched, and comes back by itself."""
