"""The stages, one file each. `run` processes a partition. Shared stages have `parts`, `do` for a part, and `join`."""
