"""The stages, a file for each: `run` does one. What workers share has `parts`, `do` for each of them, and `join`."""
