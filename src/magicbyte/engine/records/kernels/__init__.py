"""Kernels that touch every record: they walk a slice and decode all formats into columns.

They work on flat buffers and arrays, return a status (`statuses.py`), and never raise. `runs` holds RUN integers for
each run of records (`runs.py`); `state` receives where and why a kernel stopped. Positions: records/layout.py; rules:
docs/formats/.
"""
