"""``manage.py lab``: four ways to claim a job and the product's, measured side by side on this machine."""
