"""Served logs: segments, partition logs, log directories, recovery after a crash, retention."""
