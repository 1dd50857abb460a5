"""The command line, ``rein-nb``: ``demo``, ``models``, ``doctor``, ``sessions``, ``export``, ``replay``.

May import every room. What a command needs is imported when it runs, so that the first line of output does not wait for it.
"""
