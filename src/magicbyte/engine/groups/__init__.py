"""Groups: a sans-IO coordinator (requests and times in, effects out) and the records of `__consumer_offsets`.

Each kind of group has a folder: `classic/`. Committed offsets, records and the table of groups belong to all kinds.
"""
