"""What lies in a log directory and how it is read: names, files, indexes, checkpoints, snapshots, entries in order."""
