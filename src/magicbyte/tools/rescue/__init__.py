"""Rescue old backups into a running cluster or a new log directory: salvage, convert, write, and a receipt."""
