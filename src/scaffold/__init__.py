"""A new project: a policy, a tool, tasks with their recorded runs, tests of the policy, and CI."""
