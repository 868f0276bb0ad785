"""Topologies: topics, queues, subscriptions, rules and grants as defined by one file, and as drawn."""
