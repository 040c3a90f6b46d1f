"""Durable workflows: code that survives every restart between its steps. Executions are leased rows of their own."""
