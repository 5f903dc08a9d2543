"""Sockets on the event loop: moves bytes, understands none."""
