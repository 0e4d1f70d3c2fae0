"""Addresses of OpenAI-compatible endpoints, and the one host that the key of the environment goes to."""

import os
from urllib.parse import urlsplit

KEY_VARIABLE = "RULEWORLD_API_KEY"
URL_VARIABLE = "RULEWORLD_API_URL"
"""Base URLs that the key is for, separated by spaces. Unset, it is for those that the user names to a command."""
_NAMED = "_RULEWORLD_API_NAMED"
"""Those; in the environment, so that worker processes know them too."""


def check_endpoint(url: str, model: str) -> None:
    """Raise a ValueError, with what to type, for an address or a model's name that cannot be right, without asking."""
    try:
        parts, port = urlsplit(url), urlsplit(url).port
    except ValueError:
        parts, port = urlsplit(""), 0
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ValueError(
            "the endpoint must be a bare base URL without user, query or fragment; put a key into the environment "
            f"variable {KEY_VARIABLE}"
        )
    plain = url.isascii() and url.isprintable() and " " not in url
    if parts.scheme not in ("http", "https") or not (parts.hostname and port != 0 and plain):
        raise ValueError(
            f"endpoint {url!r} is no web address; type the base URL of an OpenAI-compatible server, "
            "e.g. --endpoint http://localhost:8000/v1"
        )
    if parts.path.rstrip("/").endswith("/chat/completions"):
        base = url.rstrip("/").removesuffix("/chat/completions")
        raise ValueError(f"endpoint {url!r} must not name /chat/completions; type: --endpoint {base}")
    if not model.strip():
        raise ValueError("the model has no name; type the one the server lists, e.g. --model qwen")


def trust_endpoint(url: str) -> None:
    """Let the key go to an endpoint that the user named; one that is read from a file is not trusted."""
    os.environ[_NAMED] = f"{os.environ.get(_NAMED, '')} {url}"


def read_key(url: str) -> str:
    """Return the key of the environment that may be sent to this server, or nothing; a ValueError does not hold it."""
    key = os.environ.get(KEY_VARIABLE, "").strip()
    if not (key.isascii() and key.isprintable() and " " not in key):
        raise ValueError(f"the environment variable {KEY_VARIABLE} holds a sign that no key has; set it")
    trusted = os.environ.get(URL_VARIABLE, "").split() or os.environ.get(_NAMED, "").split()
    return key if key and _origin(url) in map(_origin, trusted) else ""


def _origin(url: str) -> tuple[str, str | None, int | None]:
    try:
        parts = urlsplit(url)
        return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:
        raise ValueError(
            f"the environment variable {URL_VARIABLE} must be the base URL that {KEY_VARIABLE} is for, such as "
            "https://api.example.org/v1"
        ) from None
