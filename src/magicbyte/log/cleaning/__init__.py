"""Compaction of served logs, and the background work on them."""
