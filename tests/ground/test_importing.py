"""What an import costs and needs, seen from a fresh interpreter."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def run(code: str, *path: Path) -> str:
    env = {k: v for k, v in os.environ.items() if k != "DJANGO_SETTINGS_MODULE"}
    env["PYTHONPATH"] = os.pathsep.join(map(str, [*path, ROOT]))
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_public_names_need_no_settings_and_no_models() -> None:
    seen = run(
        "import sys, pgjobs\n"
        "from pgjobs import Backoff, Fail, LeaseLost, Retry, Snooze, job\n"
        "from django.conf import settings\n"
        "print(settings.configured, [m for m in sys.modules if m.endswith('.models') and m.startswith('pgjobs')],"
        " 'psycopg' in sys.modules)"
    )

    assert seen == "False [] False"


def test_a_job_may_be_declared_before_django_is_configured() -> None:
    seen = run(
        "from pgjobs import job\n"
        "@job(name='a.b', queue='q')\n"
        "def work(n: int) -> int: return n + 1\n"
        "print(work.job_type, work(1), work.options.queue)"
    )

    assert seen == "a.b 2 q"


CONFIGURED = """
import django
from django.conf import settings
settings.configure(INSTALLED_APPS=["django.contrib.contenttypes", "pgjobs", "shop"], DATABASES={
    "default": {"ENGINE": "django.db.backends.postgresql", "NAME": "unused"}})
django.setup()
"""


def app(folder: Path, init: str, jobs: str) -> None:
    package = folder / "shop"
    package.mkdir()
    (package / "__init__.py").write_text(init)
    (package / "jobs.py").write_text(jobs)


def test_jobs_imported_by_their_app_while_django_still_loads(tmp_path: Path) -> None:
    """Named only when the app registry is ready: before that, nobody knows the label."""
    app(
        tmp_path,
        "from shop.jobs import pack\n",
        "from pgjobs import job\n@job\ndef pack(order_id: int) -> None: ...\n",
    )

    seen = run(
        CONFIGURED
        + "from pgjobs.queue.registry import registry; import shop\n"
        + "same = registry.get('shop.pack').function is shop.pack.handler.function\n"
        + "print(registry.names(), shop.pack.job_type, same)",
        tmp_path,
    )

    assert seen == "['shop.pack'] shop.pack True"


def test_a_duplicate_that_shows_only_after_loading_names_both_places(tmp_path: Path) -> None:
    app(
        tmp_path,
        "from shop.jobs import pack\n",
        "from pgjobs import job\n@job\ndef pack() -> None: ...\nfirst = pack\n@job\ndef pack() -> None: ...\n",
    )

    seen = run(
        "from pgjobs.exceptions import DuplicateName\ntry:\n"
        + "".join(f"    {line}\n" for line in CONFIGURED.strip().splitlines())
        + "except DuplicateName as error: print(error)",
        tmp_path,
    )

    assert "'shop.pack' is declared twice" in seen
    assert f"{tmp_path}/shop/jobs.py:2" in seen and f"{tmp_path}/shop/jobs.py:5" in seen
