"""Find what is behind drift by trying: runs are made again with inputs as they were recorded.

- `find`: find the causes of the runs that drifted
- `recorded_inputs`: what the moved inputs of a run were when it was recorded, from git
- `input_diff`: the difference between an input as recorded and as it is, for a person
- `moved_policy`: what a policy that moved redacts less than the recorded one
- `scratch_copy`: a copy of a project in which inputs can be put back
- `trials`: make runs again in processes of their own, under several states of the inputs
- `remake`: such a process
- `attribution`: which inputs are behind a difference, given what each of them does alone
"""
