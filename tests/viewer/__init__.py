"""The page in a browser, against real servers and real sessions."""
