"""A bare git repository for each watched one, changed through branches that are made at most once."""

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from django.conf import settings

COMMAND_SECONDS = 30.0
MAIN = "refs/heads/main"
PIPELINE = "ci/pipeline.toml"
SEED = "timeout_minutes = 10\nretries = 0\ncache = true\n"
_ABSENT = "0" * 40
_IDENTITY = "Incident response"


class GitFailed(RuntimeError):
    """A git command ended with an error; the text holds the command and what git said."""


class Repository:
    """Opened, and made with a first commit when it is not there yet."""

    def __init__(self, full_name: str) -> None:
        self.folder = Path(settings.MEDIA_ROOT) / "incidents" / folder_name(full_name)
        if not self.folder.exists():
            self._create()

    def read(self, path: str) -> str:
        """A file of main."""
        return self._git("show", f"{MAIN}:{path}")

    def commit_of(self, branch: str) -> str | None:
        """The commit a branch stands at; None when there is no such branch."""
        return self._git("for-each-ref", "--format=%(objectname)", f"refs/heads/{branch}").strip() or None

    def branches(self) -> list[str]:
        """All but main."""
        names = self._git("for-each-ref", "--format=%(refname:lstrip=2)", "refs/heads").split()
        return [name for name in names if name != "main"]

    def branch_with(self, branch: str, patch: str, message: str) -> str:
        """The commit of ``branch``, which is made from main and ``patch`` unless it is there.

        Safe to repeat, and safe to run twice at once: git makes the branch only if there is none, so all callers
        get the commit of the first. Raises :class:`GitFailed`, for one when the patch no longer applies.
        """
        found = self.commit_of(branch)
        if found is not None:
            return found
        base = self._git("rev-parse", MAIN).strip()
        with self._index() as index:
            self._git("read-tree", base, env=index)
            self._git("apply", "--cached", "-", stdin=patch, env=index)
            tree = self._git("write-tree", env=index).strip()
        commit = self._git("commit-tree", tree, "-p", base, stdin=message).strip()
        try:
            self._git("update-ref", f"refs/heads/{branch}", commit, _ABSENT)
        except GitFailed:
            found = self.commit_of(branch)
            if found is None:
                raise
            return found
        return commit

    def _create(self) -> None:
        """Made aside and moved into place, so that nobody ever sees half a repository."""
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        place, made = self.folder, Path(tempfile.mkdtemp(prefix=".new-", dir=self.folder.parent))
        self.folder = made
        try:
            self._git("init", "--quiet", "--bare", "--initial-branch=main", str(made))
            blob = self._git("hash-object", "-w", "--stdin", stdin=SEED).strip()
            with self._index() as index:
                self._git("update-index", "--add", "--cacheinfo", f"100644,{blob},{PIPELINE}", env=index)
                tree = self._git("write-tree", env=index).strip()
            commit = self._git("commit-tree", tree, stdin="First commit\n").strip()
            self._git("update-ref", MAIN, commit)
            made.rename(place)
        except OSError:
            if not place.exists():  # else another worker was faster, and its repository is as good
                raise
        finally:
            self.folder = place
            shutil.rmtree(made, ignore_errors=True)

    @contextmanager
    def _index(self) -> Iterator[Mapping[str, str]]:
        """An index of this call's own: two workers would write over each other in the repository's."""
        with tempfile.TemporaryDirectory(prefix="incident-index-") as folder:
            yield {"GIT_INDEX_FILE": str(Path(folder) / "index")}

    def _git(self, *arguments: str, stdin: str = "", env: Mapping[str, str] | None = None) -> str:
        done = subprocess.run(
            ["git", "--git-dir", str(self.folder), *arguments],
            input=stdin,
            env={**_environment(), **(env or {})},
            cwd=self.folder,
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=COMMAND_SECONDS,
        )
        if done.returncode:
            told = done.stderr.strip() or f"exit code {done.returncode}"
            raise GitFailed(f"git {' '.join(arguments)}: {told}")
        return done.stdout


def folder_name(full_name: str) -> str:
    """A folder for a name that came over the network: no path can be made of it, no two names share one."""
    readable = re.sub(r"[^A-Za-z0-9_-]+", "-", full_name).strip("-")[:60]
    return f"{readable}-{hashlib.sha256(full_name.encode()).hexdigest()[:12]}.git"


def _environment() -> dict[str, str]:
    """Nothing of the machine's or of a surrounding git command's configuration may change what is done."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    who = {
        f"GIT_{role}_{what}": value
        for role in ("AUTHOR", "COMMITTER")
        for what, value in (("NAME", _IDENTITY), ("EMAIL", "incidents@example.invalid"))
    }
    return {**inherited, **who, "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "LC_ALL": "C"}
