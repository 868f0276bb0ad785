"""The watch: what an operator sees. Metrics, the monitor with its alerts, and the console."""
