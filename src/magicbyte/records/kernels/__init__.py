"""The loops that touch every record: walking a slice, decoding all formats into columns.

All of them work on flat buffers and arrays, return a status (`statuses.py`), and never raise. `runs` holds RUN integers
for each stretch of bytes with records in it (`runs.py`), `state` receives where and why a kernel stopped. Positions:
records/layout.py; rules: docs/formats/.
"""
