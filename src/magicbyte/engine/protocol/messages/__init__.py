"""Requests, responses and headers: a module for each API, generated from the files in schemas/messages."""
