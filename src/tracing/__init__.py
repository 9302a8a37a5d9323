"""A log as OpenTelemetry spans."""
