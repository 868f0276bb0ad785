"""Clusters from outside: made in a folder, started, checked, restarted, and decided about by an operator."""
