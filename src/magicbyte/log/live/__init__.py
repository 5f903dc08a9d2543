"""Logs that are served: segments, partition logs, log directories, loading after a crash, retention."""
