"""Work that is cut into shards, as tasks of a Ray cluster. Ray is imported by nothing else, and only when asked for."""

import logging
import socket
from collections.abc import Callable

from .._lazy import tool

SHARDS_PER_CPU = 4
"""Tasks are this many times smaller than what would keep every CPU busy once, so that a lost node loses little."""
RETRIES = 8
"""Of a task whose node or process is lost."""


def run_on_ray(
    address: str, work: Callable[[int, int], object], units: int, progress: Callable[[int, int], None]
) -> None:
    """Run ``work(i, n)``, which skips what is there, for every shard i of n; what a lost node was at, another does.

    Parameters
    ----------
    address : str
        Of the cluster, as ``ray.init`` takes it: ``auto``, ``HOST:6379`` or ``ray://HOST:10001``.
    work : callable
        Does a shard, and skips what is there; the packages must be installed on every node.
    units : int
        How many units there are: there are no more shards than that.
    progress : callable
        Called with the shards that are done and all shards.

    Raises
    ------
    ImportError
        If Ray is not installed.
    ConnectionError
        If there is no cluster, or a task was lost again and again.
    Exception
        What a shard raised.
    """
    with tool("ray", "ray"):
        import ray
    try:
        _check_listens(address, ray.util.get_node_ip_address())
        ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, RuntimeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise ConnectionError(
            f"no Ray cluster at {address} ({reason}); start one with: ray start --head"
        ) from None
    try:
        # A task that raises is not tried again: the same input raises again. One whose node dies is, but one that
        # kills its own process would do so for ever.
        task = ray.remote(num_cpus=1, max_retries=RETRIES, retry_exceptions=False)(work)
        total = max(1, min(units, SHARDS_PER_CPU * int(ray.cluster_resources().get("CPU", 1))))
        waiting = [task.remote(number, total) for number in range(1, total + 1)]
        while waiting:
            done, waiting = ray.wait(waiting)
            ray.get(done)
            progress(total - len(waiting), total)
    except ray.exceptions.RayTaskError as error:
        raise (error.cause if isinstance(error.cause, Exception) else error) from None
    except ray.exceptions.RayError as error:
        raise ConnectionError(
            f"a task was lost {RETRIES + 1} times ({str(error).strip().splitlines()[0]}); what is finished is kept: "
            "type the same command again"
        ) from None
    finally:
        ray.shutdown()


def _check_listens(address: str, here: str) -> None:
    """Raise OSError if nobody listens at a host and port: Ray asks for minutes, and may end the process then."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not (host and port.isdecimal()):
        return  # "auto", which Ray looks up
    host = host.strip("[]")
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except OSError:
        if host not in ("localhost", "127.0.0.1"):
            raise
        socket.create_connection((here, int(port)), timeout=10).close()  # the head may listen there alone
