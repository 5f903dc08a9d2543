"""Decisions on replicas: which brokers hold a partition. Pure: requests and brokers in, assignments out."""
