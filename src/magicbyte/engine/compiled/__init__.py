"""Compiled loops: the kernel decorator, machine-code images, and the primitives that kernels use."""
