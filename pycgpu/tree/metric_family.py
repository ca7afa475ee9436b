# SPDX-License-Identifier: MIT
"""A metric that leaves out rows of unknown value."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

Kind = type[GaugeMetricFamily] | type[CounterMetricFamily]
#: Labels, and a value where it is known.
Row = tuple[Sequence[str], float | None]


def family(kind: Kind, name: str, text: str, labels: Sequence[str], rows: Iterable[Row]) -> Metric:
    """Return the metric; a row without a value is absent, not 0."""
    metric = kind(name, text, labels=labels)
    for values, value in rows:
        if value is not None:
            metric.add_metric(values, value)
    return metric
