"""The commands: arguments in, one library call, text and an exit status out. One file each."""
