"""Who may come in: callers are told apart, and each is let do what its grants say, call by call"""
