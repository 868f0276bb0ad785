"""The project's tests, and what they share."""
