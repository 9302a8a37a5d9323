"""The tool contract, and tools in a process of their own.

- `contract`: `Tool`: what a tool must have, checked
- `source_scan`: look through a tool's source for imports that reach past its `io`
- `project_modules`: what a tool's module imports: modules of the project, installed packages
- `source_module`: imports a tool or hooks by the source of their file
- `loader`: load tools from modules, files and names
- `hooks`: `Hooks`: functions of a project that are asked at events of a run, made in code or loaded from a file
- `examples`: hold a tool's example calls against its input schema
- `coroutines`: coroutine functions among tools and models
- `deadline`: end a tool in this process when its time is up
- `isolation`: run a tool in a worker process that can be killed when its time is up
"""
