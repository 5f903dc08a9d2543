"""Answers about logs: what fills a disk."""
