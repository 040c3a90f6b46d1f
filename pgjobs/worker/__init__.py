"""The process: a supervisor with worker children, each of services that meet only in ``process.py``."""
