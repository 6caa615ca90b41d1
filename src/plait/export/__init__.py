"""Sessions for other systems: the calls of a session as OpenTelemetry spans.

`spans` says what a span is, `attributes` what it tells, `calls` makes spans from events, and `otlp`
sends them: it alone loads packages of OpenTelemetry.
"""
