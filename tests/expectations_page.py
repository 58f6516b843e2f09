"""Writes docs/expectations.md anew: `python -m tests.expectations_page`."""

from deltaworks.quality.every_type import page
from deltaworks.settings import ROOT

PAGE = ROOT / "docs" / "expectations.md"

if __name__ == "__main__":
    PAGE.write_text(page())
