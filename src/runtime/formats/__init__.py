"""Readers and writers of text and data that know nothing about runs.

- `canonical_json`: the one JSON encoder and the one strict JSON reader; SHA-256 digests
- `strict_yaml`: the YAML reader for policy and task files, with the line of every value
- `yaml_syntax`: the patterns and messages of `strict_yaml`
- `lazy_pattern`: regular expressions compiled at their first use
- `json_units`: how much canonical JSON holds, counted in its text
- `durable_write`: write a file whole or not at all, and put it on the disk
- `document_digest`: the digest of a YAML document by what it says
- `escape`: untrusted text made safe to show
- `json_pointer`: JSON Pointers (RFC 6901)
- `invisible_chars`: characters that are not visible, or that change how others are shown
- `read_file`: read a regular file with a size limit, without blocking
- `shipped_files`: where files that ship with the package are
"""
