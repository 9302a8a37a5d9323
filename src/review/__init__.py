"""The reviewer's desk: what a change of policy does, what drifted, what is accepted."""
