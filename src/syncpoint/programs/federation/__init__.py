"""Federation: messages move between servers by replication tasks that run on Spark. See DESIGN.md.

Importing it makes the running Python that of Spark's workers, where PYSPARK_PYTHON is not set: they need this package.
"""

import os
import sys

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
