"""The disks of a store: their writers, their upkeep, which segments lie where, and what the operator is shown."""
