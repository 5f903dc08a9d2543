"""The broker and the store of its cluster's metadata."""
