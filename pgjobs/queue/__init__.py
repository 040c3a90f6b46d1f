"""Jobs: their types, their rows, and the verbs that move them."""
