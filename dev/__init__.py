"""Tooling of this repository, not part of the wheel: evidence, generated pages, regression, sampling, smoke, demos."""
