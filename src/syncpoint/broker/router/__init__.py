"""Routers: which chains take a topic's messages, which forwarders serve a subscription, and in which order to try."""
