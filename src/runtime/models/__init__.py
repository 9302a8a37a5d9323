"""The model: its types, and the script that stands in for one."""
