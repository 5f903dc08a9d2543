"""Formats, the log and the rules of Kafka: no socket, thread, task, wall clock or random source."""
