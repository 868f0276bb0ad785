"""Analytics: what a topic's log shows about its messages, computed by batch jobs on Spark. See DESIGN.md."""
