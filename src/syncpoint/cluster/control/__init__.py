"""The control plane of a cluster: its members, the owners of its chains, and changes that all chains have confirmed."""
