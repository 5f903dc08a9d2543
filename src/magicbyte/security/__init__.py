"""Who speaks, and whether others can listen: settings, TLS contexts, SASL. No network; sockets are `net/`'s."""
