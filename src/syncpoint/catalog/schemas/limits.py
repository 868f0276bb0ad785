"""Limits of schemas: those of the real service, and those that keep one definition or message from costing too much."""

DEFINITION_BYTES_MAX = 300 * 1024
"""UTF-8 bytes of a definition, and bytes of a compiled one."""
COMPILED_BYTES_MAX = 600 * 1024
"""Of what a text of Protocol Buffers is compiled to; with the text it must fit one transaction of a metadata store."""
REVISIONS_MAX = 20
"""Of one schema."""
SCHEMAS_PER_PROJECT_MAX = 10_000

NESTING_MAX = 100
"""Levels of types in a definition, of values in a message."""
STEPS_MAX = 10_000
STEPS_PER_BYTE_MAX = 4
"""Values that checking one message may look at: a few bytes can claim to be an array of any number of empty records."""
FIELDS_MAX = 10_000
"""Fields of all messages of a Protocol Buffers definition."""

JSON_BYTES_AT_ONCE = 8 * 1024
"""Of a request times the revisions it may fit: larger ones are checked by another process, since the worst JSON of
Protocol Buffers takes 1.5 us a byte."""
BINARY_BYTES_AT_ONCE = 32 * 1024
"""The same for the binary encodings, of which the worst takes 0.3 us a byte."""
BUSY_BYTES_AT_ONCE = 1024
"""Once others have used what a turn of the event loop has for such work, only smaller requests are checked in it."""
DEFINITION_BYTES_AT_ONCE = 16 * 1024
"""Larger definitions are read by another process: 0.9 us a byte in Avro."""
CHECKED_BYTES_MAX = 40_000_000
"""Of a request, over all revisions that its messages are tried with: four times the largest request."""
