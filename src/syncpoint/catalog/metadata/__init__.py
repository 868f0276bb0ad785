"""Metadata: topics, subscriptions, snapshots and settings, and the store that servers agree over.

Place: below storage, which persists changes of the catalog without looking into them; above the rules and the wire.
"""
