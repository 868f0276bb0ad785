"""What can be wrong with a definition or with a message, before it is an error of an API."""


class BadDefinition(ValueError):
    """The definition of a schema is not a legal one; the text says why, for whoever wrote it."""


class Incompatible(ValueError):
    """A definition does not go together with the one before it."""


class Mismatch(ValueError):
    """A message does not fit a schema."""
