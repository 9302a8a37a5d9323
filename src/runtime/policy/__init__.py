"""The policy and the gate."""
