"""Where the migration scripts are: inside the installed package, or at the top of a checkout."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]


def migrations_directory() -> Path:
    """Return the directory that holds Alembic's ``env.py`` and ``versions/``.

    Raises:
        FileNotFoundError: the package was installed without its migrations.
    """
    for directory in (_PACKAGE / "migrations", _PACKAGE.parent / "migrations"):
        if (directory / "env.py").is_file():
            return directory
    raise FileNotFoundError(f"no migrations in {_PACKAGE} or beside it: slime_store is not installed completely")
