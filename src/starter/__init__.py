"""A new project: the files it begins with."""
