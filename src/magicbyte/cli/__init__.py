"""The commands, one file each: parse arguments, call one library function, print, and return an exit status."""
