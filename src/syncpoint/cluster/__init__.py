"""The cluster: which process owns which chain, and how unhealthy processes are avoided and drained."""
