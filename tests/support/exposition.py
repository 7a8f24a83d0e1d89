"""What a scrape says, read by the parser of prometheus-client."""

import re
from collections.abc import Iterable

from prometheus_client.core import Metric
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as openmetrics_families,
)
from prometheus_client.parser import text_string_to_metric_families as text_families

Labels = frozenset[tuple[str, str]]


class Scrape:
    """Samples by name and labels. A sample that is there twice fails the test."""

    def __init__(self, body: bytes, *, openmetrics: bool = False) -> None:
        self.text = body.decode()
        parse = openmetrics_families if openmetrics else text_families
        families: Iterable[Metric] = parse(self.text)
        self._samples: dict[str, dict[Labels, float]] = {}
        for family in families:
            for sample in family.samples:
                known = self._samples.setdefault(sample.name, {})
                labels = frozenset(sample.labels.items())
                assert labels not in known, f"{sample.name} is there twice"
                known[labels] = sample.value

    def value(self, name: str, **labels: str) -> float:
        """The one sample of ``name`` that has these labels, whatever others it has."""
        wanted = frozenset(labels.items())
        [value] = [value for other, value in self._samples.get(name, {}).items() if wanted <= other]
        return value

    def by(self, label: str, name: str, **labels: str) -> dict[str, float]:
        """The samples of ``name`` with these labels, by the value of one more label."""
        wanted = frozenset(labels.items())
        return {
            dict(other)[label]: value
            for other, value in self._samples.get(name, {}).items()
            if wanted <= other
        }

    def labels(self, name: str) -> list[dict[str, str]]:
        """Of every sample of ``name``."""
        return [dict(labels) for labels in self._samples.get(name, {})]

    @property
    def types(self) -> dict[str, str]:
        """Every series with its type, those without a sample included."""
        return dict(re.findall(r"^# TYPE (\S+) (\S+)$", self.text, re.MULTILINE))

    @property
    def help(self) -> dict[str, str]:
        """Every series with its HELP text."""
        return dict(re.findall(r"^# HELP (\S+) (.*)$", self.text, re.MULTILINE))
