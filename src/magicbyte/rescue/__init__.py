"""Old backups into a running cluster or a new log directory: salvage, convert, produce or place, and a receipt."""
