#!/usr/bin/env python3
"""Reads exports of traces with the schema of OpenTelemetry, and fails where one does not follow it.

Standard input: a JSON array of bodies of POST /v1/traces. Standard output: how many spans they have.

OTLP's JSON is that of Protocol Buffers but for its ids, which are hexadecimal digits; they become base64 here.
Names that the schema does not know are refused.
"""

import base64
import json
import sys

from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

IDS = {"traceId": 16, "spanId": 8, "parentSpanId": 8}


def converted(node):
    if isinstance(node, list):
        return [converted(each) for each in node]
    if not isinstance(node, dict):
        return node
    return {name: id_of(name, value) if name in IDS else converted(value) for name, value in node.items()}


def id_of(name, digits):
    assert digits == digits.lower(), f"{name}: {digits}"
    value = bytes.fromhex(digits)
    assert len(value) == IDS[name] and any(value), f"{name}: {digits}"
    return base64.b64encode(value).decode()


def main():
    count = 0
    for export in json.load(sys.stdin):
        read = json_format.ParseDict(converted(export), ExportTraceServiceRequest(), ignore_unknown_fields=False)
        for resource in read.resource_spans:
            names = {each.key: each.value.string_value for each in resource.resource.attributes}
            assert names["service.name"], names
            for scope in resource.scope_spans:
                for span in scope.spans:
                    assert span.name and span.trace_id and span.span_id, span
                    assert 0 < span.start_time_unix_nano <= span.end_time_unix_nano, span
                    assert span.kind in (1, 2, 3), span
                    count += 1
    print(count)


main()
