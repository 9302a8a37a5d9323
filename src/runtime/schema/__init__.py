"""Tool schemas: what may be written in one, and whether data fits it.

- `tool_schema`: validate data against a tool's schema and name the first mismatch
- `quick_schema`: a fast path that accepts data for simple schemas
- `schema_errors`: explain why a document does not match its schema, with a suggestion
- `schema_keywords`: the `jsonschema` validator with bounded keywords
- `schema_parts`: which keywords hold subschemas and what they apply to
- `schema_sound`: refuse schemas that would fail or mean something else at a call
- `schema_cost`: bound how often subschemas apply to one value
- `schema_walk`: find the resources that an input schema declares
- `resource_names`: property names that look like a URL, host or path
- `patterns`: `pattern` keywords compiled for Python's `re`
- `pattern_syntax`: parse ECMA-262 patterns
- `pattern_cost`: bound the time a pattern takes
"""
