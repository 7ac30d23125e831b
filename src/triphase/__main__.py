"""`python -m triphase`, where the command is not on the path."""

from triphase.cli import main

main()
