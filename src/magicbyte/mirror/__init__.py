"""Copies topics from cluster to cluster: closed sets, unopened, wherever the target stores what the source has."""
