"""Connections and requests: reading, logins, quotas, dispatch, counters; the threads and locks that all share."""
