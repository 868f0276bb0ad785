"""Bridges: messages of MQTT and RabbitMQ become messages of topics, and those of subscriptions go there."""
