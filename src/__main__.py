"""`python -m tachograph`."""

import sys

from .cli.main import main

sys.exit(main())
