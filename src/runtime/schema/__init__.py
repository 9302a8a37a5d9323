"""Tool schemas: what may be written in one, and whether data fits it.

- `dialect`: check the schemas of a tool when it is loaded: the subset for input schemas, bounds for output schemas
- `output_type`: the shape that a final answer must have
- `resource_places`: find the resources that an input schema declares, and refuse one that could hide any
- `resource_names`: property names that look like a URL, host or path
- `validator`: judge data by a schema and name the first mismatch
- `ecma_patterns`: rewrite `pattern` keywords for the linear-time regex engine
- `reference_bounds`: bound how often the parts of a schema are held against one value
- `work`: bound the work of judging data, from the sizes of schema and data
- `indexed_values`: judge `enum`, `const` and `uniqueItems` by an index where the library would compare one by one
- `subschemas`: find the schemas inside a schema
- `number_limits`: limits beyond the numbers of canonical JSON
- `schema_errors`: explain why a document does not match its schema, with a suggestion
"""
