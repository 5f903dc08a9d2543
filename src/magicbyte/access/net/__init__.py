"""Sockets on the event loop: moves bytes without interpreting them."""
