"""`python -m syncpoint.cli` is the same as the command `syncpoint`."""

from syncpoint.cli.main import main

main()
