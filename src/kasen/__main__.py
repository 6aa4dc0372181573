"""`python -m kasen`."""

from kasen.cli import main

main()
