"""Read the files of a log directory: names, indexes, checkpoints, snapshots, and entries in order."""
