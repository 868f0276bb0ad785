"""Ends of links that are no servers of ours: topics of Kafka, folders of files."""
