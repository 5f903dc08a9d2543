"""Consumer groups: a sans-IO coordinator (requests and times in, effects out) and the records of
`__consumer_offsets`.
"""
