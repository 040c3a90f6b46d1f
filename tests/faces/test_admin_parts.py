"""The parts of pages: trees, tracebacks, charts, words for time, and the words of the search."""

import json
import re
from datetime import UTC, datetime, timedelta

import pytest

from pgjobs.admin import ages, charts, search, tracebacks
from pgjobs.admin import tree as trees

HOSTILE = "<script>alert('x')</script>"
NOON = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)

TRACEBACK = """Traceback (most recent call last):
  File "/usr/lib/python3.11/site-packages/pgjobs/worker/executor.py", line 10, in run
    handler(**arguments)
  File "/srv/shop/orders/jobs.py", line 42, in charge
    stripe.charge(card)
  File "/srv/venv/lib/python3.11/site-packages/stripe/api.py", line 7, in charge
    raise Declined(card)
stripe.Declined: <card> refused
"""


def test_a_tree_shows_exact_numbers_and_no_markup() -> None:
    shown = trees.tree(
        {"id": 2**53 + 1, "deep": {"deeper": {"deepest": [1, None, True, "", {}]}}, HOSTILE: HOSTILE}
    )

    assert str(2**53 + 1) in shown
    assert "<script" not in shown and "&lt;script&gt;" in shown
    assert shown.count("<details open>") == 2 and shown.count("<details>") == 2
    assert "null" in shown and "true" in shown
    assert f'data-pgjobs-copy="{2**53 + 1}"' in shown


@pytest.mark.parametrize("value", [None, 0, "", [], {}, "text", 1.5, [[]], {"a": {}}])
def test_a_tree_shows_any_value(value: object) -> None:
    assert json.dumps(value) in trees.tree(value).replace("&quot;", '"') or "<details" in trees.tree(value)


def test_a_tree_ends_somewhere() -> None:
    value: object = "x" * 50
    for _ in range(199):
        value = [value]
    assert len(trees.tree(value)) < 20_000
    wide = trees.tree({str(n): "y" * 100 for n in range(10_000)})
    assert "Cut here" in wide and len(wide) < 4 * trees.SHOWN_CHARACTERS


def test_the_frames_of_the_project_come_first() -> None:
    own = [frame for frame in tracebacks.frames(TRACEBACK) if not frame.is_library]
    assert [(frame.line, frame.name, frame.code) for frame in own] == [(42, "charge", "stripe.charge(card)")]

    shown = tracebacks.shown(TRACEBACK)

    assert "shop/orders/jobs.py:42" in shown
    assert "Whole traceback (2 library frames)" in shown
    assert shown.index("orders/jobs.py") < shown.index("<details>")
    assert "&lt;card&gt; refused" in shown


@pytest.mark.parametrize("text", ["", "no frames", "  File broken", HOSTILE, "x" * 100_000])
def test_any_text_passes_for_a_traceback(text: str) -> None:
    shown = tracebacks.shown(text)
    assert "<script" not in shown
    assert len(shown) < 70_000


def test_charts_are_told_in_words_and_as_a_table_and_need_no_style() -> None:
    bars = charts.bars("Throughput", "2 done, 1 failed.", [charts.Bar("01:00", 2), charts.Bar(HOSTILE, 0, 1)])
    lines = charts.lines(
        "Wait", "0.4 s", ["01:00", "01:01", "01:02"], {"p50": [1, None, 3], "p95": [2, None, 6]}
    )

    for chart in (bars, lines):
        assert 'role="img"' in chart and "<title" in chart and "<desc" in chart and "<table" in chart
        assert "style=" not in chart and "<script" not in chart
    assert "2 done, 1 failed." in bars and "pgjobs-bad" in bars and "url(#pgjobs-hatch" in bars
    assert len(re.findall(r'd="M[^"]*M', lines)) == 2  # a gap is a gap
    assert charts.bars("Nothing", "Nothing.", []) and charts.lines("Nothing", "Nothing.", [], {})
    assert charts.sparkline("Nothing", [0, 0]) and charts.gauge(7, "full")


@pytest.mark.parametrize(
    ("at", "shown"),
    [
        (NOON - timedelta(minutes=13), "11:47:00 (13 min ago)"),
        (NOON + timedelta(seconds=40), "12:00:40 (in 40 s)"),
        (NOON - timedelta(days=2), "2026-11-28 12:00:00 (2 d ago)"),
    ],
)
def test_a_moment_is_told_exactly_and_in_words(at: datetime, shown: str) -> None:
    assert f">{shown}</time>" in ages.moment(at, NOON)
    assert f'datetime="{at.isoformat(timespec="milliseconds")}"' in ages.moment(at, NOON)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(None, "-"), (0.04, "40 ms"), (2.5, "2.5 s"), (200, "3 min 20 s"), (90_000, "1 d 1 h")],
)
def test_a_duration_in_words(seconds: float | None, words: str) -> None:
    assert ages.seconds_in_words(seconds) == words


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("colour:red queue:x", "'colour:red' is no word of the search"),
        ("two words", "'two' is no word of the search"),
        ("state:asleep", "state:asleep is none of"),
        ("queue:", "queue: has no value"),
        ("since:soon", "since:soon is neither a span"),
        ("before:2026-13-45", "before:2026-13-45 is neither a span"),
        ("wf:abc", "wf:abc is not the id"),
        ("payload.:1", "payload.: is no path"),
        ('type:"a', "A quotation mark is not closed"),
        ("a\x00b", "NUL"),
    ],
)
def test_what_the_search_does_not_know_is_told(text: str, told: str) -> None:
    assert told in " ".join(search.parse(text).problems)


@pytest.mark.django_db
@pytest.mark.parametrize(
    "text",
    [
        "type:app.task state:dead queue:email worker:w-1 key:order-1 err:ValueError fp:9a3f wf:3",
        'payload.customer.id:49999 result.ok:false payload.name:"a b" payload.x:NaN payload.y:1e999',
        "since:2h before:2026-11-30T01:40 before:2026-11-30T01:40Z",
        "task:x status:done",
        "extract:9f2c",
    ],
)
def test_what_the_search_knows_makes_no_trouble(text: str) -> None:
    assert search.parse(text).problems == []
