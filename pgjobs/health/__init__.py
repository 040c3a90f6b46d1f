"""What is stuck, since when, and why: the one answer that pages, commands, endpoints and metrics give.

``from pgjobs.health.examination import examine``.
"""
