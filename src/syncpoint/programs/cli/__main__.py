"""`python -m syncpoint.programs.cli` is the same as the command `syncpoint`."""

from syncpoint.programs.cli.main import main

main()
