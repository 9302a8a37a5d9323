"""Parts of a record in words, for reports, pages and commands.

- `call_words`: the arguments of a call, as compact JSON, and which calls ran together
- `failure_words`: what went wrong in a step, in words
- `hook_words`: what a hook answered, in words
- `rule_places`: the lines of rules that a record names, in the files of today
- `how_to_resume`: how an unfinished run is resumed, by the command or from code
"""
