"""The front end of a cluster: calls go on to the processes that serve them, failures stay hidden. See DESIGN.md."""
