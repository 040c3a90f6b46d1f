"""From a database of Django's settings to a URL that a child process can be given."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

COPIED_KEYS = ("NAME", "USER", "PASSWORD", "HOST", "PORT", "OPTIONS")


def url_of(settings_dict: Mapping[str, Any]) -> str:
    """The DATABASE_URL that django-environ reads back into the same connection."""
    query = {str(name): str(value) for name, value in (settings_dict.get("OPTIONS") or {}).items()}
    host = str(settings_dict.get("HOST") or "")
    if host.startswith("/"):  # a socket folder cannot stand in the host part of a URL
        query["host"], host = host, ""
    port = str(settings_dict.get("PORT") or "")
    user = quote(str(settings_dict.get("USER") or ""), safe="")
    password = quote(str(settings_dict.get("PASSWORD") or ""), safe="")
    login = f"{user}:{password}@" if password else (f"{user}@" if user else "")
    if port and not host:
        query["port"], port = port, ""
    if login and not host:  # an empty host part with a login is not read back
        query["user"], login = str(settings_dict["USER"]), ""
        if password:
            query["password"] = str(settings_dict["PASSWORD"])
    place = f"{login}{host}{':' + port if port else ''}"
    return f"postgres://{place}/{settings_dict['NAME']}" + (f"?{urlencode(query, safe='/')}" if query else "")


def point_at(settings_dict: dict[str, Any], url: str) -> None:
    """Makes a connection's settings mean the database at `url`. TEST and the rest stay as they are."""
    import environ

    read = environ.Env.db_url_config(url)
    for key in COPIED_KEYS:
        settings_dict[key] = read.get(key, {} if key == "OPTIONS" else "")
