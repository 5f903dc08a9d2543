"""Who speaks, whether others can listen, who may do what: TLS, SASL, ACLs. No network; sockets are `net/`'s."""
