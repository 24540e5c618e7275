"""``python -m crystal_node`` is the ``crystal`` command."""

import sys

from crystal_node.surfaces.cli import main

sys.exit(main())
