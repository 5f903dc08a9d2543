"""The cluster's metadata: a tree of nodes with ZooKeeper's semantics, in memory or in SQLite, and Kafka's layout of
it.
"""
