"""Topologies: topics, queues, subscriptions, rules and grants as one file says them, and as they are drawn."""
