"""What can go wrong: the exception tree (`errors`) and the catalog of modes and endings (`catalog`)."""
