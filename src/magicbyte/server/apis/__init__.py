"""Handlers of requests, a file for each family of APIs; what senders may do."""
