"""Programs: what runs beside the servers. The command line, federation, analytics, probers, rollouts and topologies."""
