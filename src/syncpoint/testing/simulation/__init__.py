"""Deterministic simulation: the shipped code of a whole cluster in one process, in time and chance of our own.

`loop` has processes that crash and hang, `sim_network` what lies between them, `simulated_disks` what they write to,
`simulated_cluster` puts the shipped roles together on these, `scenario` lets clients work while faults happen, from a
seed. Nothing of the product is replaced but the interfaces of `runtime`, `transport.network` and the metadata store.
"""
