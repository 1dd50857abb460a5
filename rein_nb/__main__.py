"""``python -m rein_nb`` and the command ``rein-nb``."""

from __future__ import annotations

import sys

from rein_nb.cli.parser import main

if __name__ == "__main__":
    sys.exit(main())
