"""Who may come in: callers are distinguished, and each is let do what its grants say, call by call"""
