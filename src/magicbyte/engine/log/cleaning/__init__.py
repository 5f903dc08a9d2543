"""Log cleaning: compaction of served logs, and background maintenance."""
