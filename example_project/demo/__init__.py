"""Parts of ``manage.py demo``: the story of a killed worker, told on real documents and a real server."""
