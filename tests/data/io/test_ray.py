"""A Ray cluster of two nodes on this machine, one of them killed in the middle: the same bytes.

Slow: a cluster takes half a minute to start. Needs ``pip install 'ruleworld-data[ray]'``.
"""

import importlib.util
import os
import subprocess
import sys
import time

import pytest
from ruleworld_data.io import build

from ..cases import contents

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs ruleworld-data[ray]"),
]


@pytest.fixture(scope="module")
def cluster():
    from ray.cluster_utils import Cluster

    options = {"num_cpus": 1, "object_store_memory": 100 << 20, "include_dashboard": False}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_raylet_start_wait_time_s", "120")  # on a busy machine its agents start slowly
        started = Cluster(initialize_head=True, head_node_args=options)
        started.second = started.add_node(num_cpus=1, object_store_memory=100 << 20)
        yield started
        started.shutdown()


def begin(folder, address, shards=0):
    """Build into ``out`` of a folder, which is where the driver is and no node; return once shards are there."""
    words = [sys.executable, "-m", "ruleworld_data.cli", "build", "--scale", "tiny", "--out", "out"]
    words += ["--ray", address]
    driver = subprocess.Popen(words, cwd=folder, env=os.environ, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while len(list((folder / "out").glob("*/*.parquet"))) < shards:
        assert driver.poll() is None and time.monotonic() < deadline, driver.stderr.read()
        time.sleep(0.01)
    return driver


def test_a_node_that_is_killed_in_the_middle_changes_no_byte(cluster, tmp_path):
    driver = begin(tmp_path, cluster.address, 3)
    cluster.remove_node(cluster.second, allow_graceful=False)
    assert len(list((tmp_path / "out").glob("*/*.parquet"))) < 57
    said = driver.communicate(timeout=150)[1]
    assert driver.returncode == 0, said
    build(tmp_path / "here", "tiny")
    assert contents(tmp_path / "out") == contents(tmp_path / "here")


def test_a_cluster_that_is_not_there_is_one_line(tmp_path):
    driver = begin(tmp_path, "127.0.0.1:1")
    said = driver.communicate(timeout=60)[1]
    assert driver.returncode == 2 and "Traceback" not in said
    assert "no Ray cluster at 127.0.0.1:1" in said.splitlines()[-1]
