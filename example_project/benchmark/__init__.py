"""``manage.py benchmark``: how fast pgjobs is on this machine, and what it costs at rest."""
