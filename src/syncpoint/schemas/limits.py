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
