"""Run by `.ci/run` outside the tree with the installed wheel: a store is created and upgraded by what was shipped."""

import sys
from pathlib import Path

import slime_store
from slime_store.config import StoreConfig
from slime_store.database import create_store_engine
from slime_store.schema import HEAD, ensure_schema, stored_revision
from slime_store.schema.location import migrations_directory

folder = Path(sys.argv[1])
package = Path(slime_store.__file__).parent
assert "site-packages" in package.parts, package
assert migrations_directory() == package / "migrations", migrations_directory()
config = StoreConfig.parse(folder / "smoke.db")
for _ in range(2):
    engine = create_store_engine(config)
    ensure_schema(engine, config)
    assert stored_revision(engine) == HEAD
    engine.dispose()
assert (package / "py.typed").exists()
print(f"the wheel of slime_store {slime_store.__version__} creates and opens a store of schema {HEAD}")
