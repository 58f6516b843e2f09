"""Run the command line with `python -m deltaworks.cli`."""

from deltaworks.cli.main import run

run()
