"""A tool's only way out: mounts and hosts behind the gate.

- `workspace`: the mounts and hosts of a run: opened, prepared, closed
- `mounts`: `Mount` and `Host`, and the open folders of a run
- `tool_io`: the `io` handle: all that a tool may do outside its process
- `decoding`: read the bytes of files and pages as text
- `safe_open`: open a file below a folder without following links
- `mount_isolation`: check that writable mounts overlap nothing else
- `http`: one HTTPS GET to an address that was checked
"""
