"""A tool's only way out: mounts and hosts behind the gate.

- `workspace`: the mounts and hosts of a run: opened, prepared, closed
- `mounts`: `Mount` and `Host`, and the open folders of a run
- `attempt_io`: what all of `io` stands on: its life, its tool's effect kind, its facts for the gate
- `web_io`: the network of `io`: requests and their redirects
- `tool_io`: the `io` handle: all that a tool may do outside its process
- `credentials`: values of the policy's credentials, added to requests
- `request_parts`: method, headers and body of a request, checked
- `decoding`: read the bytes of files and pages as text
- `safe_open`: open a file below a folder without following links
- `mount_isolation`: check that writable mounts overlap nothing else
- `guarded`: what no folder that a run writes may hold
- `http`: one HTTPS request to an address that was checked
- `http_answer`: the request as it is sent, and its answer as it is read
"""
