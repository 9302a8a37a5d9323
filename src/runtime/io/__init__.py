"""What tools may touch: files and hosts."""
