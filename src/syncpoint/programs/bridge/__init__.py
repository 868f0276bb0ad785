"""Bridges: messages of an MQTT 5 broker become messages of topics."""
