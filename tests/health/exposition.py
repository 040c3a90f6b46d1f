"""Reads the text format of Prometheus, strictly: whatever is not in its grammar is an error."""

import re
from dataclasses import dataclass, field

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_HELP = re.compile(rf"# HELP ({_NAME}) ((?:[^\\\n]|\\[\\n])*)")
_TYPE = re.compile(rf"# TYPE ({_NAME}) (counter|gauge|histogram)")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"')
_SAMPLE = re.compile(rf"({_NAME})(?:\{{((?:{_LABEL.pattern},?)*)\}})? (\S+)")
_UNESCAPE = {r"\\": "\\", r"\n": "\n", r"\"": '"'}


@dataclass
class Metric:
    """One family."""

    kind: str
    samples: dict[tuple[str, frozenset[tuple[str, str]]], float] = field(default_factory=dict)

    def value(self, suffix: str = "", **labels: str) -> float:
        return self.samples[suffix, frozenset(labels.items())]

    def labels(self) -> list[dict[str, str]]:
        return [dict(labels) for _, labels in self.samples]


def parsed(text: str) -> dict[str, Metric]:
    assert text.endswith("\n") and not text.endswith("\n\n")
    found: dict[str, Metric] = {}
    current = ""
    for line in text.splitlines():
        if line.startswith("# HELP "):
            match = _HELP.fullmatch(line)
            assert match and match[1] not in found, line
            current = match[1]
        elif line.startswith("# TYPE "):
            match = _TYPE.fullmatch(line)
            assert match and match[1] == current, line
            found[current] = Metric(match[2])
        else:
            match = _SAMPLE.fullmatch(line)
            assert match and match[1].startswith(current), line
            labels = frozenset(
                (name, re.sub(r'\\[\\n"]', lambda m: _UNESCAPE[m[0]], value))
                for name, value in _LABEL.findall(match[2] or "")
            )
            key = (match[1].removeprefix(current), labels)
            assert key not in found[current].samples, f"twice: {line}"
            found[current].samples[key] = float(match[5])
    for name, metric in found.items():
        _check(name, metric)
    return found


def _check(name: str, metric: Metric) -> None:
    assert name.endswith("_total") == (metric.kind == "counter"), name
    suffixes = {suffix for suffix, _ in metric.samples}
    assert suffixes <= ({"_bucket", "_sum", "_count"} if metric.kind == "histogram" else {""}), (
        name,
        suffixes,
    )
