"""Analytics: what a topic's log says of its messages, worked out by batch jobs on Spark. See DESIGN.md."""
