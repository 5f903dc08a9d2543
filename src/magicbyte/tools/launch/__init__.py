"""Local clusters: brokers and a ZooKeeper as processes of this machine."""
