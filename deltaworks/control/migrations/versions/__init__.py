"""One file per revision: `rNNNN_what.py`, never changed once it is released."""
