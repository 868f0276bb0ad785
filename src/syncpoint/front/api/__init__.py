"""The servicers: a request is translated, one room below is called, and its answer is translated back.

Place: between the transport, which hands over bytes, and the forwarders and the catalog, which decide.
"""
