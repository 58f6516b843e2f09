"""What every test process needs."""

import sys

# PySpark takes a main module without a file, which is what a process of pytest-xdist has, for a run of its doctests,
# and ends the process when gRPC is missing. Great Expectations imports that part of PySpark.
vars(sys.modules["__main__"]).setdefault("__file__", __file__)
