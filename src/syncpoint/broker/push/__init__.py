"""Push subscriptions: messages go to HTTP endpoints, signed, at the pace that each endpoint keeps up with."""
