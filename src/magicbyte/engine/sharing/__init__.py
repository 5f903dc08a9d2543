"""Share groups (KIP-932), without IO: the records that members have in hand, and their stored states.

`share_partition.py` has the records of one partition, `share_coordinator.py` the states in `__share_group_state`.
"""
