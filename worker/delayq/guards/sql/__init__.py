"""Shared parts of the SQL guards: engines, transactions, the ledger table, users' statements, drivers' errors.

Not here: the guards, in guards/sql_unique.py, sql_pessimistic.py and sql_optimistic.py.
"""
