"""Questions put to recorded runs and to gates.

- `recorded_queries`: what the gate was asked in a recorded run
- `witness`: an event that two policies decide differently
- `address_ranges`: addresses that one list of networks opens and another does not
"""
