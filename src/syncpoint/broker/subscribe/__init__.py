"""Subscribe forwarder: lends messages to subscribers until they acknowledge (see DESIGN.md)."""
