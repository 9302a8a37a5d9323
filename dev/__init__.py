"""Tooling of this repository: evidence, generated pages, regression, smoke. Not part of the wheel."""
