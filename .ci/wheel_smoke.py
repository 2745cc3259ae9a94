"""Run by `.ci/run` outside the tree with the installed wheel: a store is made and used by what was shipped alone."""

import importlib
import pkgutil
import sys
from pathlib import Path

import slime_store
from slime_store import RolloutFnTrainOutput, Sample, SampleStore
from slime_store.schema import HEAD
from slime_store.schema.location import migrations_directory

folder = Path(sys.argv[1])
package = Path(slime_store.__file__).parent
assert "site-packages" in package.parts, package
assert migrations_directory() == package / "migrations", migrations_directory()
assert (package / "py.typed").exists()

names = [module.name for module in pkgutil.walk_packages(slime_store.__path__, "slime_store.")]
names = [name for name in names if not name.startswith("slime_store.migrations") and "__main__" not in name]
for name in names:  # all but the migrations, which Alembic runs
    module_file = importlib.import_module(name).__file__
    assert module_file is not None and Path(module_file).is_relative_to(package), module_file

sample = Sample(
    group_index=3,
    index=5,
    prompt=[{"role": "user", "content": "1 + 1"}],
    tokens=[1, 2, 3],
    response="2",
    response_length=1,
    loss_mask=[1],
    rollout_log_probs=[-0.25],
    weight_versions=["7"],
    reward={"task": 1.0},
    metadata={"source": ("wheel", 1)},
)
for rollout_id in range(2):  # made, then opened again
    with SampleStore.open(folder / "smoke.db") as store:
        store.run("smoke").record_train(rollout_id, RolloutFnTrainOutput([[sample]], {"loss": 0.5}))
with SampleStore.open(folder / "smoke.db", read_only=True) as store:
    run = store.run("smoke", create=False)
    for rollout_id in range(2):
        output = run.load_train(rollout_id)
        assert output.metrics == {"loss": 0.5}, output
        assert [[vars(loaded) for loaded in group] for group in output.samples] == [[vars(sample)]], output.samples
print(f"the wheel of slime_store {slime_store.__version__}, {len(names)} modules, records and loads (schema {HEAD})")
