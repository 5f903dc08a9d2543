"""Share groups (KIP-932): members, their assignment, and which partitions have a state at the share coordinator."""
