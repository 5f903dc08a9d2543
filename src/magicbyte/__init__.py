"""Every Kafka message format in one package: read, write, convert, compact, serve, mirror."""

__version__ = "0.1.0"
