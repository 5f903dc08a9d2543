"""Kafka's messages: every request, response, header and stored record, in every version."""
