"""Prepare a produced record set for a log: validation, offsets, timestamps, conversion, producer state."""
