"""Ordered recomputations of a table, beside its owner: `recompute.py --app NAME --project DIR --epoch N COMMAND...`."""

import argparse
import logging
import sys
from pathlib import Path

from deltaworks.control.store import Store
from deltaworks.engine.driver import leave
from deltaworks.engine.recomputation import Recomputation
from deltaworks.errors import DeltaworksError
from deltaworks.settings import Settings


def main() -> int:
    """Parse arguments, carry the orders out, give the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--app", required=True)
    parser.add_argument("--project", type=Path)
    parser.add_argument("--epoch", type=int, required=True, help="of the owner that took the commands")
    parser.add_argument("--owner", type=int, required=True, help="its process: this one ends with it")
    parser.add_argument("commands", type=int, nargs="+", help="their numbers; all of one table")
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    settings = Settings.load(given.project)
    try:
        with Store(settings.control_dsn()) as store:
            orders = Recomputation(
                settings, store, app=given.app, epoch=given.epoch, owner=given.owner, numbers=given.commands
            )
            return orders.run()
    except DeltaworksError as error:
        logging.getLogger("deltaworks").error("%s", error)  # an expected error is one line
        return 3
    except BaseException:  # a panic in delta-rs is no Exception, and the JVM's threads would keep the process
        logging.getLogger("deltaworks").exception("the recomputation failed")
        return 1


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    leave(code)
