"""The commands: `COMMANDS` lists them, and each is a function in a module of this folder or of one in it.

The folder `policy` holds the commands below `tachograph policy`, `views` those that show recorded runs.

A module is imported when one of its commands is called. It has `add(commands, verb)`, which adds the parsers of its
commands; `verb(commands, name, act)` gives a parser with the options that all commands have.
"""

EXIT_CODES = "exit codes: 0 as expected, 1 another ending or drift, 2 bad input, 3 suspended, 130/143 ended by a signal"
# name -> the module that adds it, and what `--help` says of it; the second word is a command below `policy`
COMMANDS = {
    "init": ("init", "create a project: policy, tool, tasks, recorded runs, CI, hook"),
    "run": ("run", "run a task and record it as four files"),
    "resume": ("run", "continue an interrupted run from its journal"),
    "approve": ("approve", "answer a question that a run put into a file"),
    "check": ("check", "make recorded runs again and compare them byte for byte"),
    "verify": ("check", "check records in themselves, without running anything"),
    "secrets": ("secrets", "search recorded runs for secrets; --canary: try whether any gets into one"),
    "seal": ("sealing", "sign runs, or with --all the whole project, with ed25519 keys"),
    "replay": ("check", "make runs again from their own records: no model, no tools"),
    "accept": ("accept", "record drifted runs anew and store the reason; refused in CI"),
    "review": ("review", "go through drift at a terminal, cause by cause: accept, skip, view, explain"),
    "index": ("index", "complete what a crash cut off in runs/, and write its index anew"),
    "ls": ("views.ls", "list recorded runs: name, ending, failure mode, steps, model, when"),
    "show": ("views.show", "print a recorded run, or two side by side"),
    "explain": (
        "views.show",
        "say why each call of a run was decided as it was: by the gate, hooks, a person",
    ),
    "site": ("views.pages", "write recorded runs as a static site: an index, and a page each"),
    "policy": ("", "check, show, compare and test policies"),
    "policy check": ("policy.check", "load policies and report what is wrong with them"),
    "policy show": ("policy.show", "print the policy that is in force"),
    "policy version": ("policy.check", "print the version of a policy"),
    "policy decide": (
        "policy.check",
        'let the gate decide one call, before hooks: {"tool": ..., "arguments": {...}}',
    ),
    "policy diff": ("policy.diff", "print what a changed policy allows or denies, unlike the old one"),
    "policy test": ("policy.test", "run the policy tests"),
    "policy coverage": (
        "policy.test",
        "change a policy entry by entry and report changes that no test notices",
    ),
    "policy suggest": ("policy.suggest", "draft the strictest policy under which a recorded run passes"),
    "push": ("views.push", "send the traces of recorded runs to an OTLP receiver"),
    "doctor": ("doctor", "report what works here, what is missing, and the command that fixes it"),
    "completion": ("completion", "print the script that completes commands in a shell"),
}
