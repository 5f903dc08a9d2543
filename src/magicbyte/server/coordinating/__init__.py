"""The coordinators of groups and of transactions: loading, their logs, markers, requests to other brokers."""
