"""The store in a PostgreSQL database, for sessions beyond one machine.

psycopg is imported by the modules in here alone, and they are imported when such a store is opened:
`address.py`, which reads addresses, needs none of it.
"""
