"""Acknowledgements over sites: what a subscription has acknowledged at one end of a flow, at the other end, too."""
