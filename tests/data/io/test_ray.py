"""A Ray cluster of two nodes on this machine, one of them killed in the middle: the same bytes.

Slow: a cluster takes half a minute to start. Needs ``pip install 'ruleworld-data[ray]'``.
"""

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ruleworld_data.io import build

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs ruleworld-data[ray]"),
]
ENVIRONMENT = os.environ | {"RAY_USAGE_STATS_ENABLED": "0", "RAY_raylet_start_wait_time_s": "120"}


class Cluster:
    """A head and a second node, processes of their own, a CPU each, killed as a machine goes: all at once."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        port = self.address.rpartition(":")[2]
        head = ["--head", "--port", port, "--temp-dir", str(folder), "--include-dashboard", "false"]
        self.nodes: list[subprocess.Popen] = []
        try:
            self._start(1, *head)  # one after the other: both look for free ports
            self._start(2, "--address", self.address)
        except BaseException:
            self.stop()
            raise

    def _start(self, count: int, *words: str) -> None:
        ray = Path(sys.executable).with_name("ray")
        common = ["start", "--block", "--num-cpus", "1"]
        common += ["--object-store-memory", str(100 << 20), "--disable-usage-stats"]
        words = [str(ray), *common, *words]
        for _ in range(4):  # on a busy machine Ray gives up on agents of its own that start slowly
            node = subprocess.Popen(words, env=ENVIRONMENT, start_new_session=True, stdout=subprocess.DEVNULL)
            self.nodes = [*self.nodes[: count - 1], node]
            if self._is_up(count, node):
                return
        raise TimeoutError(f"no cluster of {count} nodes")

    def _is_up(self, count: int, node: subprocess.Popen) -> bool:
        code = "import ray, sys; ray.init(sys.argv[1], log_to_driver=False)\n"
        code += "print('nodes', sum(node['Alive'] for node in ray.nodes()))"
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and node.poll() is None:
            asked = [sys.executable, "-c", code, self.address]
            said = subprocess.run(asked, env=ENVIRONMENT, capture_output=True, text=True).stdout
            if f"nodes {count}" in said:
                return True
            time.sleep(1)
        self.kill(node)
        return False

    def stop(self) -> None:
        for node in reversed(self.nodes):
            self.kill(node)

    def kill(self, node: subprocess.Popen) -> None:
        if node.poll() is None:
            os.killpg(node.pid, signal.SIGKILL)
            node.wait()


@pytest.fixture(scope="module")
def cluster():
    # Sockets below it have names of at most 107 bytes.
    folder = Path("/tmp") / f"ray-{os.getpid()}"
    started = Cluster(folder)
    yield started
    started.stop()
    shutil.rmtree(folder)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def begin(folder: Path, address: str) -> subprocess.Popen:
    """Build into ``out`` of a folder, which is where the driver is and no node."""
    words = [sys.executable, "-m", "ruleworld_data.cli", "build", "--scale", "tiny", "--out", "out"]
    words += ["--ray", address]
    return subprocess.Popen(words, cwd=folder, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True)


def begin_and_wait(folder: Path, address: str) -> tuple[subprocess.Popen, list[Path]]:
    """Begin, and return once there are some shards: the driver, and what is there."""
    driver, deadline = begin(folder, address), time.monotonic() + 120
    while len(there := list((folder / "out").glob("*/*.parquet"))) < 3:
        assert driver.poll() is None and time.monotonic() < deadline, driver.stderr.read()
        time.sleep(0.01)
    return driver, there


def finish(driver: subprocess.Popen, folder: Path) -> None:
    said = driver.communicate(timeout=150)[1]
    assert driver.returncode == 0, said
    build(folder / "here", "tiny")
    assert contents(folder / "out") == contents(folder / "here")


def test_a_driver_that_dies_is_taken_up_by_the_next(cluster, tmp_path):
    driver, _ = begin_and_wait(tmp_path, cluster.address)
    driver.kill()
    driver.communicate()
    there = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("*/*.parquet")}
    assert len(there) >= 3 and not (tmp_path / "out" / "build.json").exists()
    finish(begin(tmp_path, cluster.address), tmp_path)
    assert {path: path.stat().st_mtime_ns for path in there} == there


def test_a_node_that_is_killed_in_the_middle_changes_no_byte(cluster, tmp_path):
    driver, there = begin_and_wait(tmp_path, cluster.address)
    cluster.kill(cluster.nodes[1])
    assert len(there) < 57
    finish(driver, tmp_path)


def test_a_cluster_that_is_not_there_is_one_line(tmp_path):
    driver = begin(tmp_path, "127.0.0.1:1")
    said = driver.communicate(timeout=60)[1]
    assert driver.returncode == 2 and "Traceback" not in said
    assert "no Ray cluster at 127.0.0.1:1" in said.splitlines()[-1]
