"""The model: its types, the scripted model for tests and CI, and live providers.

- `types`: `LLMInput`, `LLMOutput`, `ToolCall`, and the strict reading of a reply
- `scripted`: the scripted model of a task

`providers/` holds the live models, one module each.
"""
