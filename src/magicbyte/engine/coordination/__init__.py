"""The kit of coordinators, without IO: terms, deadlines, callers, effects, partitioning, and the reading of logs.

`decider.py` has the methods of a coordinator, and its invariants. `server/coordinating/` performs its effects.
"""
