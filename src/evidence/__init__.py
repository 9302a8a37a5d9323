"""Records: recording, checking, verifying, replaying."""
