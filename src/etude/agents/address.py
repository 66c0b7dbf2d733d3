"""Where an agent may connect to: public addresses, and those that the settings allow.

The address that was checked is the one that is connected to, so that a name which changes its mind gains nothing.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Collection

from etude.errors import Refused, Unavailable

GLOBAL_V6 = ipaddress.ip_network("2000::/3")


def connect(host: str, port: int, allow: Collection[str], timeout: float) -> socket.socket:
    """A connection to one of the host's addresses that may be reached; `allow` has further hosts and networks."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise Unavailable(f"`{host}` cannot be found.") from None
    allowed = [info for info in found if may_reach(host, str(info[4][0]), allow)]
    if not allowed:
        raise Refused(
            f"`{host}` is not a public address.",
            hint="Give one that everybody can reach, or have it allowed in `agents.reach`.",
        )
    for family, kind, protocol, _, address in allowed:
        opened = socket.socket(family, kind, protocol)
        try:
            opened.settimeout(timeout)
            opened.connect(address)
        except OSError:
            opened.close()
        else:
            return opened
    raise Unavailable(f"`{host}` cannot be reached.")


def may_reach(host: str, address: str, allow: Collection[str]) -> bool:
    """Whether the host, at this address, is public or allowed."""
    found = ipaddress.ip_address(address.partition("%")[0])
    plain = getattr(found, "ipv4_mapped", None) or found
    return is_public(plain) or any(_covers(entry, host, plain) for entry in allow)


def is_public(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Whether the address belongs to everybody: not to this machine, its networks, a group or another address."""
    if isinstance(address, ipaddress.IPv6Address) and (address not in GLOBAL_V6 or address.sixtofour is not None):
        return False
    return address.is_global and not address.is_multicast


def _covers(entry: str, host: str, address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    try:
        return address in ipaddress.ip_network(entry, strict=False)
    except ValueError:
        return entry.lower() == host.lower().rstrip(".")
