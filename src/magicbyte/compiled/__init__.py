"""Loops that compile: the kernel decorator, its images, and the primitives that kernels are made of."""
