"""Publish forwarder: takes messages in, makes them durable, remembers who acknowledged what (see DESIGN.md)."""
