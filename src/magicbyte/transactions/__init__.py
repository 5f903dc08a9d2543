"""Transactions: what the coordinator stores, and in time the coordinator."""
