"""Strict readers and writers of JSON, YAML and text for people."""
