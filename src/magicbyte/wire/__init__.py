"""Integers, varints, checksums and the kernel decorator. The only room that imports numba."""
