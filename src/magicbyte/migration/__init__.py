"""Format migrations of clusters: the plan, and the rehearsal of its next step."""
