"""``python -m specdec_jax.cli``, for where the console script is not on the path."""

import sys

from . import main

sys.exit(main())
