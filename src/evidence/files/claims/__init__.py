"""What a manifest claims of the machine and the code that made a run; nothing else in the run shows it.

- `volatile`: the volatile keys of a manifest, and the shape that each must have
- `package_digest`: the sources of this package that shape a run, and their digest
- `commit`: the commit that holds the very code that makes runs
"""
