"""A new project for `tachograph init`.

- `new_project`: write the files and record the first runs, or nothing
- `files`: the files of a new project
- `install`: what the CI of a new project installs
"""
