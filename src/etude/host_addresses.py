"""Addresses: which ones are public, how allow-lists name hosts, and connections that DNS rebinding cannot redirect.

All such decisions are made here: for the proxy of sessions, the webhooks and bridges of agents, and the server's check
of host names.
"""

from __future__ import annotations

import contextlib
import ipaddress
import re
import socket
from collections.abc import Callable, Collection, Iterable, Sequence

from etude.errors import Invalid, Refused, Unavailable

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Resolve = Callable[[str, int], Iterable[str]]

TRIES = 4
"""How many addresses of one host are tried."""
# Written out, because what `is_global` and `is_private` say differs between releases of Python.
_SPECIAL_V4 = tuple(
    ipaddress.IPv4Network(text)
    for text in (
        "0.0.0.0/8",  # this network; Linux connects 0.0.0.0 to itself
        "10.0.0.0/8",
        "100.64.0.0/10",  # carrier-grade NAT; one cloud's metadata service
        "127.0.0.0/8",
        "168.63.129.16/32",  # a public number, but inside Azure the agent that configures the machine
        "169.254.0.0/16",  # link-local; the metadata services of most clouds
        "172.16.0.0/12",
        "192.0.0.0/24",  # protocol assignments; one cloud's metadata service
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # relays of 6to4
        "192.168.0.0/16",
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and broadcast
    )
)
_UNICAST_V6 = ipaddress.IPv6Network("2000::/3")
"""The only public IPv6 range: loopback, link-local, site-local, unique local and multicast are outside."""
_SPECIAL_V6 = tuple(
    ipaddress.IPv6Network(text)
    for text in (
        "2001::/23",  # protocol assignments: Teredo, ORCHID, benchmarks
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4: deprecated, and the address inside can be any
        "3fff::/20",  # documentation
    )
)
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_ISATAP = (0x00005EFE, 0x02005EFE)
"""The upper half of the interface id of an ISATAP address; the lower half is an IPv4 address."""
_LABEL = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)")
_LONGEST_NAME = 253
_LOOPBACK = (ipaddress.ip_address("127.0.0.1"), ipaddress.ip_address("::1"))


# -- which addresses are public


def is_public_address(address: Address) -> bool:
    """True if the address is on the public internet. An embedded IPv4 address must be public as well."""
    if isinstance(address, ipaddress.IPv4Address):
        return not any(address in network for network in _SPECIAL_V4)
    inner = _embedded(address)
    if inner is not None and not is_public_address(inner):
        return False
    if address.ipv4_mapped is not None or address in _NAT64:
        return True
    return address in _UNICAST_V6 and not any(address in network for network in _SPECIAL_V6)


def is_loopback_host(host: str) -> bool:
    """True if the host, a name or an address, is a loopback address of this machine."""
    folded = normalize_host(f"[{host}]" if ":" in host else host)
    if folded == "localhost":
        return True
    with contextlib.suppress(ValueError):
        return _plain(ipaddress.ip_address(folded)).is_loopback
    return False


def _embedded(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """Return the embedded IPv4 address that packets are sent to, if any. Ranges that are never public are ignored."""
    low = int(address) & 0xFFFF_FFFF
    if address in _NAT64 or int(address) >> 32 & 0xFFFF_FFFF in _ISATAP:
        return ipaddress.IPv4Address(low)
    return address.ipv4_mapped


def _plain(address: Address) -> Address:
    """Return the address that the system connects to: IPv4 if it is written as IPv4-mapped IPv6."""
    return getattr(address, "ipv4_mapped", None) or address


# -- hosts and allow-lists


def parse_host_port(text: str, default_port: int = 0) -> tuple[str, int] | None:
    """Parse `host:port` into a normalized host and a port; return None if the text is anything else."""
    match = re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[^:\[\]@/?#\s]+)(?::([0-9]{1,5}))?", text, re.ASCII)
    if match is None:
        return None
    host, port = normalize_host(match[1]), int(match[2] or default_port)
    return (host, port) if host and 0 < port < 1 << 16 else None


def parse_allowed_host(entry: str) -> tuple[str, int]:
    """Parse an entry of an allow-list into host and port; raise `Invalid` for anything but `host:port`."""
    found = parse_host_port(entry) if isinstance(entry, str) else None
    if found is None:
        raise Invalid(
            f"`{entry}` is not a host and port.",
            hint="Write each entry like `api.example.com:443`, `192.0.2.7:80` or `[2001:db8::7]:80`; there are no "
            "wildcards.",
            value=str(entry),
        )
    return found


def parse_reachable_host(entry: str) -> str | Network:
    """Parse an entry of an allow-list without ports into a network or a host name; raise `Invalid` otherwise."""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_network(entry, strict=False)
    host = normalize_host(entry)
    if not host:
        raise Invalid(
            f"`{entry}` is neither a host name nor a network.",
            hint="Write each entry like `hooks.internal`, `10.1.2.3`, `10.1.0.0/16` or `fd00::/8`; there are no "
            "wildcards.",
            value=str(entry),
        )
    return host


def normalize_host(host: str) -> str:
    """Normalize a host name or address; return an empty string if it is neither. IPv6 must be in brackets."""
    with contextlib.suppress(ValueError):
        if host.startswith("["):
            return str(ipaddress.IPv6Address(host[1:-1])) if host.endswith("]") else ""
        host = host.removesuffix(".").encode("idna").decode("ascii").lower()
        with contextlib.suppress(ValueError):
            return str(ipaddress.IPv4Address(host))
        labels = host.split(".")
        # Some resolvers read a name that ends in a number as an IPv4 address in an old notation.
        looks_like_address = re.fullmatch(r"[0-9]+|0x[0-9a-f]*", labels[-1])
        if len(host) <= _LONGEST_NAME and not looks_like_address and all(map(_LABEL.fullmatch, labels)):
            return host
    return ""


def may_reach_host(host: str, address: Address, reach: Collection[str]) -> bool:
    """True if the host, at this address, is public or covered by an entry of `reach`."""
    return is_public_address(address) or any(
        _covers(parse_reachable_host(entry), host, _plain(address)) for entry in reach
    )


def _covers(entry: str | Network, host: str, address: Address) -> bool:
    return normalize_host(host) == entry if isinstance(entry, str) else address in entry


# -- connections


def resolve_host(host: str, port: int) -> list[str]:
    """Return the addresses of a host name, from the resolver of this machine."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def find_host_addresses(
    host: str, port: int, allowed: Callable[[Address], bool] = is_public_address, resolve: Resolve = resolve_host
) -> list[Address]:
    """Look the host up once and return those of its addresses that are allowed.

    Raises `Unavailable` if it has no address, and `Refused` if none is allowed. Connect to the returned addresses,
    never to the name: a second lookup could return another address, which is how DNS rebinding works.
    """
    try:
        found = [ipaddress.ip_address(text) for text in resolve(host, port)]
    except (OSError, ValueError):
        found = []
    if not found:
        raise Unavailable(f"`{host}` has no address.", hint="Check the name.")
    kept = [address for address in found if allowed(address)]
    if not kept:
        raise Refused(
            f"`{host}` is not a public address.",
            hint="Use a public address, or have it allowed in `agents.reach`.",
        )
    return kept


def loopback_host_addresses() -> list[Address]:
    """Return the loopback addresses, for the name `localhost`."""
    return list(_LOOPBACK)


def dial_host_addresses(
    addresses: Sequence[Address],
    port: int,
    timeout: float,
    *,
    hold: Callable[[socket.socket], object] = lambda _: None,
    drop: Callable[[socket.socket], object] = socket.socket.close,
) -> socket.socket:
    """Connect to the first of the addresses that answers; raises the last `OSError` if none does.

    `hold` is called with each socket before it connects, `drop` with each that fails.
    """
    failure = OSError("the host has no address")
    for address in addresses[:TRIES]:
        target = socket.socket(socket.AF_INET if address.version == 4 else socket.AF_INET6, socket.SOCK_STREAM)
        hold(target)
        try:
            target.settimeout(timeout)
            target.connect((str(address), port))
        except OSError as error:
            drop(target)
            failure = error
        else:
            return target
    raise failure


def connect_to_host(host: str, port: int, reach: Collection[str], timeout: float) -> socket.socket:
    """Connect to a host if it is public or covered by an entry of `reach`."""
    addresses = find_host_addresses(host, port, lambda address: may_reach_host(host, address, reach))
    try:
        return dial_host_addresses(addresses, port, timeout)
    except OSError as error:
        raise Unavailable(f"`{host}` cannot be reached: {error.strerror or error}.") from None
