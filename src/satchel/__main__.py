"""``python -m satchel`` is the command line."""

import sys

from satchel.cli.main import main

sys.exit(main())
