"""`python -m delayq` is the command `delayq`."""

from delayq.cli import main

main()
