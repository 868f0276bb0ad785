"""Federation: messages move between servers by replication tasks that run on Spark. See DESIGN.md."""
