"""Readers of Kafka's primitive types, and checksums."""
