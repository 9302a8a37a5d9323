"""Signed snapshots of a whole project.

- `keys`: key files, the keys that a verifier trusts, and the optional library that signs
- `statement`: what a snapshot states of a project
- `snapshots`: the folder `seals/`: read, check the chain and the signatures, write
- `compare`: how a project differs from its snapshot
- `seal_all`: make a snapshot, add a signature to it, verify a project by it
"""
