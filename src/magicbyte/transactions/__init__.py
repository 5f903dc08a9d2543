"""Transactions: who decides them, and the records of `__transaction_state`."""
