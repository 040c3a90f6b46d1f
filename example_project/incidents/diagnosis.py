"""Stands in for the language model of a real project: says what broke, and writes a patch that git can apply."""

import difflib
import re
from dataclasses import dataclass

from example_project.incidents.repository import PIPELINE


class ModelUnavailable(RuntimeError):
    """The model gave no answer; ask again."""


@dataclass(frozen=True)
class Remedy:
    """One line of the pipeline's settings and what it should become."""

    setting: str
    value: str
    why: str


REMEDIES = {
    "slow": Remedy("timeout_minutes", "30", "The run needs more time than it is given."),
    "flaky": Remedy("retries", "2", "The same commit passes when it is tried again."),
    "stale cache": Remedy("cache", "false", "The deployment was built from an old cache."),
}


def cause_of(kind: str, outcome: str) -> str:
    """A key of ``REMEDIES``."""
    if outcome == "timed_out":
        return "slow"
    return "stale cache" if kind == "deployment_status" else "flaky"


def write_patch(cause: str, before: str) -> tuple[str, str]:
    """What is to be done, and how: (summary, unified diff of the pipeline's settings)."""
    remedy = REMEDIES[cause]
    line = f"{remedy.setting} = {remedy.value}"
    after, changed = re.subn(rf"(?m)^{remedy.setting} = .*$", line, before)
    if not changed:
        after = f"{before}{line}\n"
    names = (f"a/{PIPELINE}", f"b/{PIPELINE}")
    diff = difflib.unified_diff(before.splitlines(keepends=True), after.splitlines(keepends=True), *names)
    return f"{remedy.why} Set {line}.", "".join(diff)
