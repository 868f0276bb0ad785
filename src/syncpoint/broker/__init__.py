"""The broker: the life of a message from publish to acknowledgement.

Routers, publish and subscribe forwarders, pipelines and inner consumers.
"""
