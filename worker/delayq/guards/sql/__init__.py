"""What the SQL guards share: engines, transactions, the ledger table, users' statements, drivers' errors.

Not here: any guard. Each is a strategy of its own, in guards/sql_unique.py, sql_pessimistic.py and sql_optimistic.py.
"""
