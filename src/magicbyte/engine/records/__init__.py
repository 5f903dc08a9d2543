"""Messages and record batches of every format: views, columns, builders, conversion."""
