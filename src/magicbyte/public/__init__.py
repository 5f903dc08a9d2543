"""What `import magicbyte` gives: logs anywhere, opened, read, checked and converted. The commands share it."""
