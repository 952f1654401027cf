"""`python -m clients` is digenctl."""

from clients.main import main

main()
