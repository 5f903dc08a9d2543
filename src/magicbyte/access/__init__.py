"""What moves bytes, and what proves who a peer is; and this machine's clock and threads."""
