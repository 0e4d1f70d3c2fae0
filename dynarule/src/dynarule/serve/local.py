"""Whether a request comes from a page or client of this machine: a server without a key answers no other."""

from __future__ import annotations

from collections.abc import Mapping

HOSTS = (b"127.0.0.1", b"localhost")


def from_elsewhere(headers: Mapping[bytes, bytes]) -> bool:
    """Say whether the names in a request's headers (ASGI, lower case) are not this machine's.

    A stranger's page can give its own name the address of this machine, or post without reading what comes back.
    """
    host = headers.get(b"host", b"")
    return (
        host.partition(b":")[0] not in HOSTS or headers.get(b"origin", b"http://" + host) != b"http://" + host
    )
