"""The implementation of `import magicbyte`: open, read, check and convert logs. The commands use it as well."""
