"""What the gate judges: URLs, addresses and mount paths, each parsed once and strictly.

- `url`: URLs and the allowlist
- `mount_path`: paths of the form `mount/part/part`
- `networks`: which IP addresses are public, and which private ones a policy opens
- `http_methods`: the methods of HTTP that a policy can allow
- `redirects`: the target of a redirect from its Location header
"""
