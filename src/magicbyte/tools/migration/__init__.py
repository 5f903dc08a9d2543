"""Plan and rehearse format migrations of clusters."""
