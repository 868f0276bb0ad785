"""Conditions have no function that Python calls; see rule_conditions.py."""
