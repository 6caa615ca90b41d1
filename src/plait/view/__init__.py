"""The page of a family of sessions in one file, for those who have no server.

The file has the page itself, and the answers that the page would get from a server, in compressed
pieces that are inflated when a reader looks at them (`viewer/src/file/`).
"""
