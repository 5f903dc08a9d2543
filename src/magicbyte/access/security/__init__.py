"""Authentication, encryption and authorization: TLS, SASL, ACLs. No network; sockets are in `net/`."""
