"""Transactions: a sans-IO coordinator, and the records of `__transaction_state`."""
