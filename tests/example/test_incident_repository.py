"""The git side of incidents: a branch is made once, whoever asks and however often."""

import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from example_project.incidents.diagnosis import REMEDIES, write_patch
from example_project.incidents.repository import PIPELINE, SEED, GitFailed, Repository, folder_name

pytestmark = pytest.mark.usefixtures("media_root")


def together(count: int, work: Callable[[int], Any]) -> list[Any]:
    """The results of calls that began at one moment."""
    barrier = threading.Barrier(count)

    def one(number: int) -> Any:
        barrier.wait(20)
        return work(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(one, range(count)))


def git(repository: Repository, *arguments: str) -> str:
    command = ["git", "--git-dir", str(repository.folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("cause", REMEDIES)
def test_every_patch_applies(cause: str) -> None:
    repository = Repository("example/shop")
    _, patch = write_patch(cause, repository.read(PIPELINE))
    commit = repository.branch_with("fix", patch, "Why")
    remedy = REMEDIES[cause]
    after = git(repository, "show", f"fix:{PIPELINE}")
    assert f"{remedy.setting} = {remedy.value}\n" in after
    assert len(after.splitlines()) == len(SEED.splitlines())
    assert git(repository, "rev-parse", "fix").strip() == commit
    assert git(repository, "log", "--format=%s", "main..fix").strip() == "Why"
    assert repository.read(PIPELINE) == SEED


def test_a_repeated_call_finds_its_branch() -> None:
    repository = Repository("example/shop")
    _, patch = write_patch("slow", SEED)
    first = repository.branch_with("fix", patch, "First")
    _, other = write_patch("flaky", SEED)
    assert Repository("example/shop").branch_with("fix", other, "Second") == first
    assert repository.branches() == ["fix"]


def test_a_repeated_call_finds_its_branch_although_main_has_moved_on() -> None:
    """As when the branch was merged before the killed step ran again: the patch applies no more."""
    repository = Repository("example/shop")
    _, patch = write_patch("slow", SEED)
    first = repository.branch_with("fix", patch, "First")
    git(repository, "update-ref", "refs/heads/main", first)
    assert repository.branch_with("fix", patch, "First") == first


def test_all_who_ask_at_once_get_one_branch() -> None:
    _, patch = write_patch("slow", SEED)
    repository = Repository("example/shop")
    commits = together(6, lambda number: repository.branch_with("fix", patch, f"Number {number}"))
    assert len(set(commits)) == 1
    assert git(repository, "rev-list", "--count", "main..fix").strip() == "1"


def test_all_who_open_it_first_at_once_get_one_repository(media_root: Path) -> None:
    opened = together(6, lambda number: Repository("example/shop"))
    assert {repository.read(PIPELINE) for repository in opened} == {SEED}
    assert [path.name for path in (media_root / "incidents").iterdir()] == [folder_name("example/shop")]


def test_a_patch_that_no_longer_applies_makes_no_branch() -> None:
    repository = Repository("example/shop")
    _, patch = write_patch("slow", "timeout_minutes = 5\n")
    with pytest.raises(GitFailed, match="patch does not apply"):
        repository.branch_with("fix", patch, "Too late")
    assert repository.branches() == []


@pytest.mark.parametrize("name", ["../../etc/passwd", "/root", "..", "", "a/b\0c", "-x", "x" * 500])
def test_names_from_outside_stay_inside(media_root: Path, name: str) -> None:
    folder = folder_name(name)
    assert "/" not in folder and len(folder) < 100 and not folder.startswith("..")
    assert Repository(name).folder.resolve().parent == (media_root / "incidents").resolve()


def test_two_names_share_no_folder() -> None:
    assert folder_name("a/b") != folder_name("a-b")


def test_a_surrounding_git_command_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As within a hook, where git tells its children which repository they are in."""
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "index"))
    monkeypatch.setenv("GIT_OBJECT_DIRECTORY", str(tmp_path / "objects"))
    monkeypatch.setenv("GIT_AUTHOR_NAME", "Somebody")
    repository = Repository("example/shop")
    _, patch = write_patch("slow", SEED)
    commit = repository.branch_with("fix", patch, "Why")
    monkeypatch.undo()
    assert git(repository, "log", "-1", "--format=%an", commit).strip() == "Incident response"
    assert not (tmp_path / "index").exists() and not (tmp_path / "objects").exists()
