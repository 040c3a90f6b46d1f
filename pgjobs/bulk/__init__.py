"""Bulk operations: one verb on every job that matches a filter, in paced batches that survive whoever carries them."""
