"""A session told to people: its steps, its lanes, its track, and the shapes that carry them.

Everything here is a fold of events or a picture of folds, kept as a cache at most. The shell, the
server, the page and the dossier show the same shapes (`shapes.py`).
"""
