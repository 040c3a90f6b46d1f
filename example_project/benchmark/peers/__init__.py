"""``manage.py benchmark --peers``: pgjobs and other queues side by side on one server, in alternating rounds."""
