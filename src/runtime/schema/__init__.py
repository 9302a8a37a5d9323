"""Tool schemas: what may be written in one, and whether data fits it.

- `dialect`: check the schemas of a tool when it is loaded: the subset for input schemas, bounds for output schemas
- `resource_places`: find the resources that an input schema declares, and refuse one that could hide any
- `validator`: judge data by a schema and name the first mismatch
- `ecma_patterns`: rewrite `pattern` keywords for the linear-time regex engine
- `reference_bounds`: bound how often the parts of a schema are held against one value
- `subschemas`: find the schemas inside a schema
- `number_limits`: limits beyond the numbers of canonical JSON
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
