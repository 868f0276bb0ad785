"""A real Kafka broker, and Spark's own Kafka source, for tests, examples and measurements.

Both come as jars that `pom.xml` pins and Maven brings, under the machine's own settings, into the user's cache; each
must be in `jars.sha256` with its checksum. Where that is not possible, `KafkaMissing` says why.
"""
