"""What the script reads from and changes in the world: files, output, the clock, commands that it starts.

A replay runs the script again, so its effects must not happen twice, and what it read must be the same again.
"""
