"""Drift: reported, rendered, accepted.

- `report`: drift as data: each run's first difference in context
- `context`: the call, decision and rule around a difference
- `excerpt`: two values side by side, cut around their difference
- `groups`: drifted runs by cause, and why they drifted
- `text`: drift for a terminal
- `page`: drift as an HTML page
- `annotations`: drift as annotations and a job summary for GitHub
- `accept`: record drifted runs anew, with a reason
- `merge`: what stands of two branches that both accepted changes
"""
