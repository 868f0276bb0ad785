"""A process with all roles that is a server by itself: its metadata lie in its log, and its roles call each other."""
