"""Tooling of this repository: evidence, generated pages, regression, sampling, smoke. Not part of the wheel."""
