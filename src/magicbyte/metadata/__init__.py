"""The cluster's metadata: a tree of nodes as ZooKeeper has it, in memory or in SQLite, and Kafka's layout of it."""
