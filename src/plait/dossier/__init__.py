"""The dossier: the evidence of a run as a folder that a stranger can read, print and check.

`dossier.json` has every claim with the place in the log that it rests on, and the record itself;
`dossier.html` shows the same, without scripts. Notebooks show values by the same rules.
"""
