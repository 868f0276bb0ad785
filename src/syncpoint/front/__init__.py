"""The front: calls of clients.

The servicers of the API, the proxy that carries calls to their owners, and a client for the command line.
"""
