"""What a log makes of a produced record set: checks, offsets, timestamps, conversion, producer state."""
