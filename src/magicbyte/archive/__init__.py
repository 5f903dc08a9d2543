"""Work on logs that nobody serves: inventory, verify, salvage, convert, diff, rebuild, filter, compact, retain."""
