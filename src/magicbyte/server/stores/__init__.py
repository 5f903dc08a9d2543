"""What a broker knows of its cluster, in the tree of metadata: topics, users, ACLs, membership, the controller."""
