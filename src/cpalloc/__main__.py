"""``python -m cpalloc``: the command line."""

from cpalloc.cli import main

if __name__ == "__main__":
    main()
