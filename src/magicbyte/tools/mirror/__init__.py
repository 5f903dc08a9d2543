"""Mirror topics from cluster to cluster, without decompression if the target stores the source's format."""
