"""The front end of a cluster: calls of clients go on to whoever serves them, failures stay hidden. See DESIGN.md."""
