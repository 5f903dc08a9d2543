"""Consumer groups: the coordinator, requests and times in and effects out, and the records of `__consumer_offsets`."""
