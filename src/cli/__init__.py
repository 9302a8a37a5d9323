"""The command line."""

import gc

# A command begins by importing much that lives as long as it does, so collecting garbage there finds nothing.
gc.set_threshold(100_000)
