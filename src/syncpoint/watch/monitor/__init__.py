"""Monitor: what an operator is notified of: indicators, objectives, alerts, and two weeks of history."""
