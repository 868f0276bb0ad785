"""The numbers of an OTLP export of metrics, named as Prometheus names them."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

from tests.kit.otlp_receiver import attributes_of

NumbersByLabels = dict[tuple[str, frozenset[tuple[str, str]]], float]


def numbers_of(export: Any) -> NumbersByLabels:
    """By name and labels; of a histogram `_count`, `_sum` and `_bucket` with `le`, each with what lies below it."""
    found: NumbersByLabels = {}
    metrics = [one for part in export.resource_metrics for scope in part.scope_metrics for one in scope.metrics]
    for metric in metrics:
        kind = metric.WhichOneof("data")
        for point in getattr(metric, kind).data_points:
            labels = frozenset(attributes_of(point.attributes).items())
            if kind != "histogram":
                found[metric.name, labels] = point.as_double if point.HasField("as_double") else point.as_int
                continue
            found[f"{metric.name}_count", labels] = point.count
            found[f"{metric.name}_sum", labels] = point.sum
            below = accumulate(point.bucket_counts)
            for bound, count in zip(point.explicit_bounds, below, strict=False):  # the last one is all
                found[f"{metric.name}_bucket", labels | {("le", str(bound))}] = count
    return found
