"""OpenTelemetry spans of a run.

- `spans`: ledger lines to a span tree
- `otlp_json`: the span tree as `trace.json`
- `live`: spans sent while a run is under way
- `step_template`: the spans of an ordinary step as text
- `endpoint`: parse the endpoint of a collector
- `push`: send the spans of a recorded run
- `otlp_proto`: spans as an OTLP request
- `content`: add messages to spans; move a trace in time
"""
