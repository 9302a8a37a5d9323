"""The command line."""

import gc

# A command begins by importing much that lives as long as it does; looking for garbage in it finds nothing.
gc.set_threshold(100_000)
