"""The web pages of ``demo --serve``: a server in a child process, and the login a person gets."""

import secrets
import socket
import time
import urllib.request

from django.contrib.auth import get_user_model

from example_project.demo.crew import Crew, DemoError

WEB = "web"
HOST = "127.0.0.1"
LOGIN = "demo"
START_SECONDS = 30.0


def make_login() -> str:
    """Create the demo's superuser, or give it a new password. Returns the password."""
    password = secrets.token_urlsafe(9)
    model = get_user_model()
    user, _ = model.objects.get_or_create(username=LOGIN, defaults={"is_staff": True, "is_superuser": True})
    user.set_password(password)
    user.save()
    return password


def start_web(crew: Crew, port: int) -> str:
    """Start the web server and return its address once it answers.

    Raises DemoError when the port is taken, when the server ends, and when it does not answer.
    """
    _require_free(port)
    # --insecure: Django serves static files although DEBUG is off, which is right on one's own machine only.
    crew.start(WEB, "runserver", "--noreload", "--insecure", f"{HOST}:{port}")
    address = f"http://{HOST}:{port}/"
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        crew.check()
        try:
            with urllib.request.urlopen(address, timeout=5):
                return address
        except OSError:
            time.sleep(0.1)
    raise DemoError(f"{address} did not answer within {START_SECONDS:g} s:\n{crew.log_tail(WEB)}")


def _require_free(port: int) -> None:
    """Asked first: otherwise whoever holds the port would answer in place of the demo's server."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except (OSError, OverflowError) as error:
            raise DemoError(
                f"Port {port} cannot be used: {error}. Choose another one with --port, such as --port 8765."
            ) from error
