"""OpenTelemetry spans of a run.

- `spans`: ledger lines to a span tree
- `otlp_json`: the span tree as `trace.json`
- `export`: send spans through the exporters of the OpenTelemetry SDK
- `live`: spans sent while a run is under way
- `step_template`: the spans of an ordinary step as text
- `endpoint`: parse the endpoint of a collector
- `push`: send the spans of a recorded run
- `content`: add messages to spans; move a trace in time
"""
