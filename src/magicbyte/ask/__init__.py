"""Answers about logs: what fills a disk, and what is wrong with a directory."""
