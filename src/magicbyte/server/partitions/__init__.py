"""Served partitions: appends, replicas, fetching from leaders, periodic work on logs."""
