"""The commands below `tachograph policy`, one module each."""
