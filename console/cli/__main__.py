"""`python -m console.cli`."""

from . import main

main()
