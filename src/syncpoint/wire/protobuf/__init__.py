"""Protobuf contracts: message classes of every interface served, and the table of error details.

Place: between the transport, which moves bytes, and the api, which knows what they mean.
Promise: the classes live in a descriptor pool of their own, so that the official client can run in the same process.
"""
