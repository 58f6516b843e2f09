"""The driver of one app: `stream.py --app NAME --project DIR [--drain]`."""

import argparse
import logging
import sys
from pathlib import Path

from deltaworks.engine.driver import Driver, leave
from deltaworks.errors import DeltaworksError
from deltaworks.settings import Settings


def main() -> int:
    """Parse arguments, run the driver, give its exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--app", required=True)
    parser.add_argument("--project", type=Path)
    parser.add_argument("--drain", action="store_true", help="work until caught up, then end")
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    try:
        return Driver(app=given.app, settings=Settings.load(given.project), drain=given.drain).run()
    except DeltaworksError as error:
        logging.getLogger("deltaworks").error("%s", error)  # an expected error is one line
        return 3
    except BaseException:  # a panic in delta-rs is no Exception, and the JVM's threads would keep the process
        logging.getLogger("deltaworks").exception("the driver failed")
        return 1


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    leave(code)
