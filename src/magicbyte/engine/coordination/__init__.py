"""What all coordinators have in common: terms, deadlines, callers, partitioning, and versioned records."""
