"""Schemas of messages: what a legal definition is, what fits it, and which revisions a schema has. See DESIGN.md."""
