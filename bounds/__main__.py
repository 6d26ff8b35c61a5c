"""``python -m bounds`` is ``servebound``."""

import sys

from bounds.cli import main

sys.exit(main())
