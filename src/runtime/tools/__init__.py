"""Tools: the contract, and how they are loaded."""
