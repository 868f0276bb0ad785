"""The control plane of a cluster: who is there, who owns which chain, and changes that everybody has confirmed."""
