"""A cluster of brokers as processes of this machine, with a ZooKeeper: started, looked at, stopped."""
