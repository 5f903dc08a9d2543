"""The cluster as a value: its brokers, topics, settings and rights, and the changes of them."""
