"""Tells public addresses from all others, IPv4 inside IPv6 included. No I/O."""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

# IANA's special-purpose registries and what clouds add. Own tables, since Python's differ by version.
PRIVATE_V4 = tuple(
    IPv4Network(block)
    for block in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",  # carrier-grade NAT; also one cloud's metadata
        "127.0.0.0/8",
        "168.63.129.16/32",  # a cloud's machine agent, on a public address
        "169.254.0.0/16",  # link local: metadata of most clouds
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
    )
)
_PUBLIC_V6 = IPv6Network("2000::/3")
PRIVATE_V6 = tuple(IPv6Network(block) for block in ("2001::/23", "2001:db8::/32", "3ffe::/16", "3fff::/20"))
# What lies in these two is an IPv4 address and nothing else: IPv4-mapped, and NAT64 (RFC 6052).
_CARRIERS = (IPv6Network("::ffff:0:0/96"), IPv6Network("64:ff9b::/96"))
_SIX_TO_FOUR = IPv6Network("2002::/16")
_ISATAP = (0x00005EFE, 0x02005EFE)  # the 32 bits before the embedded address


def is_public(address: str) -> bool:
    """Whether an address belongs to the public internet, and so does every IPv4 address inside it."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return False
    if isinstance(parsed, IPv4Address):
        return not any(parsed in block for block in PRIVATE_V4)
    if parsed.scope_id is not None:
        return False
    carried = _carried_v4(parsed)
    if carried is not None and not is_public(str(carried)):
        return False
    if any(parsed in block for block in _CARRIERS):
        return True
    return parsed in _PUBLIC_V6 and not any(parsed in block for block in PRIVATE_V6)


def literal_address(host: str) -> IPv4Address | IPv6Address | None:
    """The address that a host is written as, or None for a name."""
    try:
        return ip_address(host)
    except ValueError:
        return None


def unmapped(address: str) -> str:
    """`::ffff:a.b.c.d` as a.b.c.d: the same host, reached by the protocol that was checked."""
    parsed = ip_address(address)
    mapped = parsed.ipv4_mapped if isinstance(parsed, IPv6Address) else None
    return address if mapped is None else str(mapped)


def _carried_v4(address: IPv6Address) -> IPv4Address | None:
    """The IPv4 address inside a mapped, NAT64, 6to4 or ISATAP address.

    Teredo, translated, compatible and local NAT64 addresses are private as a whole, whatever they carry.
    """
    number = int(address)
    if address in _SIX_TO_FOUR:
        return IPv4Address(number >> 80 & 0xFFFFFFFF)
    if any(address in block for block in _CARRIERS) or number >> 32 & 0xFFFFFFFF in _ISATAP:
        return IPv4Address(number & 0xFFFFFFFF)
    return None
