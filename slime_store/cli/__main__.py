"""``python -m slime_store.cli``."""

from slime_store.cli import main

if __name__ == "__main__":
    main()
