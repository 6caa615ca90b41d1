"""The server: sessions over HTTP, for the page and for programs.

One table of routes (`routes.py`) is the application, the OpenAPI document and the page's types. The
server reads the store, acts through `Session`, and starts runs as processes of their own.
"""
