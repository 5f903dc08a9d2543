"""Work on logs of stopped brokers: inventory, verify, salvage, convert, diff, rebuild, filter, compact, retain."""
