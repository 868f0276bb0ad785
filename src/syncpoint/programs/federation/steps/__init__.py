"""Steps: what patterns do to messages on their way, each a function from a data frame to a data frame."""
