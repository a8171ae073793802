"""Sets OpenTelemetry up in every Python process that has this folder on its path, as `opentelemetry-instrument` does.

Each process writes its spans, one line of JSON each, to a file of its own in the folder TRACED_FOLDER.
"""

import os
from pathlib import Path

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

_file = (Path(os.environ["TRACED_FOLDER"]) / f"spans-{os.getpid()}").open("a", buffering=1)
_provider = TracerProvider()
_provider.add_span_processor(
    SimpleSpanProcessor(ConsoleSpanExporter(out=_file, formatter=lambda span: f"{span.to_json(indent=None)}\n"))
)
trace.set_tracer_provider(_provider)
