"""The model: its types, the scripted model for tests and CI, and live providers.

- `types`: `LLMInput`, `LLMOutput`, `ToolCall`, and the strict reading of a reply
- `named`: a live model that is named and not opened yet
- `request_parts`: tools and options of a request as a ledger holds them, each once by digest
- `failure_messages`: what the model reads of a failure or a denial
- `scripted`: the scripted model of a task

`providers/` holds the live models, one module each.
"""
