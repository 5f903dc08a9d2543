"""Records of Kafka's internal topics: a module for each, generated from the files in schemas/records.

A key or a value begins with its version as an int16, which is not part of these messages.
"""
