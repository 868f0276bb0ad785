"""Processes of a cluster: the rooms of one node, each where `cluster.yaml` puts it. See DESIGN.md of `node`."""
