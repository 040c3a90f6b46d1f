"""One fingerprint for one cause: of exceptions, of Fail, of dead workers, and none for what went well."""

import json
from typing import Any

import pytest

from pgjobs.leases.reap import reap_lapsed
from pgjobs.queue.fingerprints import LOST, fingerprint, normalised
from pgjobs.queue.models import Job
from pgjobs.queue.outcomes import Failed, Problem, Raised, Succeeded
from pgjobs.worker.problems import describe, project_frame
from tests.leases.factories import columns, end, lapse, running
from tests.support.own_database import QUEUE


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("order 4711 not found", "order 12 not found"),
        ("timed out after 30.5s", "timed out after 7s"),
        (
            "key (id)=(6f1ed002-ab59-4d2c-8f3a-0123456789ab) exists",
            "key (id)=(0b3f2c31-ab59-4d2c-8f3a-0123456789ac) exists",
        ),
        ("no user 'ann'", "no user 'bob \"x\"'"),
        ("cannot reach https://a.example/x?y=1 now", "cannot reach https://b.example now"),
        ("bounced: ann@example.org", "bounced: bob@example.com"),
        ("<Thing object at 0x7f00a1>", "<Thing object at 0x55d3>"),
        ("checksum 9f86d081884c7d65 differs", "checksum e3b0c44298fc1c14 differs"),
        ("a\n  b", "a b"),
    ],
)
def test_messages_that_differ_in_what_varies_are_one(one: str, other: str) -> None:
    assert normalised(one) == normalised(other)


@pytest.mark.parametrize(
    ("one", "other"), [("card refused", "card expired"), ("deadbeef", "beefdead"), ("", "x")]
)
def test_messages_that_differ_in_words_are_two(one: str, other: str) -> None:
    assert normalised(one) != normalised(other)


def test_each_part_tells_causes_apart() -> None:
    base = ("a.job", "ValueError", "a.jobs:run", "no luck")
    others = [(*base[:n], "other", *base[n + 1 :]) for n in range(4)]
    assert len({fingerprint(*parts) for parts in [base, *others]}) == 5
    assert len(fingerprint(*base)) == 40
    assert fingerprint("a", "b", "c", "\ud800")  # whatever an exception says


def _raised(payload: str) -> BaseException:
    try:
        json.loads(payload)
    except ValueError as error:
        return error
    raise AssertionError("it was valid")


def test_the_frame_is_the_innermost_of_the_project() -> None:
    error = _raised("{")
    assert project_frame(error) == "tests.queue.test_fingerprints:_raised", "json is not the project's"
    assert describe(error).frame == project_frame(error)
    assert project_frame(ValueError("never raised")) == ""


pytestmark = pytest.mark.django_db


def prints(pk: int) -> tuple[Any, ...]:
    return columns(pk, "error_class", "fingerprint")


def test_a_bad_end_is_written_with_its_class_and_fingerprint() -> None:
    problem = Problem("error", "app.CardRefused", "card 1 refused", "Traceback …", "app.pay:charge")
    first, second, other = running(), running(), running()
    end(first, Raised(problem, 0))
    end(second, Raised(Problem("error", "app.CardRefused", "card 22 refused", "", "app.pay:charge"), 0))
    end(other, Failed(Problem("fail", "", "encrypted file", "", "app.pay:read")))
    assert prints(first.lease.pk) == prints(second.lease.pk)
    assert prints(first.lease.pk)[0] == "app.CardRefused" and prints(other.lease.pk)[0] == "Fail"
    assert prints(first.lease.pk)[1] != prints(other.lease.pk)[1]
    [entry] = columns(first.lease.pk, "errors")
    assert entry["fingerprint"] == prints(first.lease.pk)[1]


def test_a_success_has_none() -> None:
    job = running()
    end(job, Succeeded("1"))
    assert prints(job.lease.pk) == (None, None)


def test_a_dead_worker_leaves_the_same_fingerprint_as_the_code_would() -> None:
    job = running(job_type="größe.messen")
    lapse(job.lease.pk)
    reap_lapsed(Job, using=QUEUE)
    expected = fingerprint("größe.messen", LOST, "", "")
    assert prints(job.lease.pk) == (LOST, expected)
    [entry] = columns(job.lease.pk, "errors")
    assert entry["fingerprint"] == expected
