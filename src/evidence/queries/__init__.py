"""Questions about recorded runs.

- `counterfactual`: what another policy would have decided in a recorded run
- `decision_comparison`: compares each decision of a run, as another policy makes it, with the recorded one
- `flips`: the decisions that another policy changes in a run
- `explain`: why each call of a run was decided as it was
- `decide`: decide one call from a file
- `show`: a recorded run as text
- `show_request`: what the model saw at a step
- `wrap`: wrap lines for a terminal
"""
