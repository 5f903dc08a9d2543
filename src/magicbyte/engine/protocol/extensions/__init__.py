"""Messages of our own, with per-field integer encodings (KIP-625): generated from the files in schemas/extensions."""
