"""A copy of a build whose content is changed as if it had been made that way."""

import hashlib
import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from ruleworld_data.verify import verify


@pytest.fixture
def tampered(tmp_path):
    """Return a function that copies a build."""
    return lambda folder: Tampered(Path(shutil.copytree(folder, tmp_path / "copy")))


class Tampered:
    """A copy of a build whose rows can be changed as if it had been made that way."""

    def __init__(self, folder):
        self.folder = folder

    def path(self, config, split):
        return next((self.folder / config).glob(f"{split}-*.parquet"))

    def rows(self, config, split):
        return pq.read_table(self.path(config, split)).to_pylist()

    def write(self, config, split, rows):
        """Replace a shard; sign it, so that only its content can give it away."""
        path = self.path(config, split)
        table = rows if isinstance(rows, pa.Table) else pa.Table.from_pylist(rows, pq.read_schema(path))
        pq.write_table(table, path)
        digest, name = hashlib.sha256(path.read_bytes()).hexdigest(), path.relative_to(self.folder).as_posix()
        signed = {"sha256": digest, "bytes": path.stat().st_size}
        self.edit_manifest(lambda m: next(e for e in m["shards"] if e["path"] == name).update(signed))

    def edit_manifest(self, edit):
        manifest = json.loads((self.folder / "build.json").read_text())
        edit(manifest)
        (self.folder / "build.json").write_text(json.dumps(manifest))

    def change(self, config, split, edit, which=lambda row: True):
        """Edit the first row that fits; return it."""
        rows = self.rows(config, split)
        row = next(row for row in rows if which(row))
        edit(row)
        self.write(config, split, rows)
        return row

    def failed(self, solvers=("executor",)):
        """Verify; return the examples of each check that failed."""
        report = verify(self.folder, solvers=solvers)
        assert not report.ok
        return {check.name: " | ".join(check.examples) for check in report.checks if check.failures}
