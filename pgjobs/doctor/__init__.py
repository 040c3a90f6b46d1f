"""What is wrong with the database side of the queue, since when, and what cures it. Reads only."""
