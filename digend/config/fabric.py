"""A trusted fabric, as `keys.trusted_fabric` of a node file says it: a network on which tensors go in the clear.

Pure. Invariant: a network that left `network_of` is not every address.
"""

from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

Network = IPv4Network | IPv6Network


def network_of(text: str) -> Network:
    """A network in CIDR form, such as 10.91.0.0/24. Raises ValueError that says what was expected."""
    try:
        network = ip_network(text)
    except ValueError:
        raise ValueError(f"expected a network such as 10.91.0.0/24{_meant(text)}") from None
    if network.prefixlen == 0:
        raise ValueError("expected the network of these boxes, such as 10.91.0.0/24: this one is every address")
    return network


def is_in(host: str, network: Network | None) -> bool:
    """Whether a host is an address (an IPv6 one maybe in brackets) of the network. A name is not."""
    if network is None:
        return False
    try:
        return ip_address(host.strip("[]")) in network
    except ValueError:
        return False


def _meant(text: str) -> str:
    """A hint where an address of the network was written instead of its first."""
    try:
        return f"; did you mean {ip_network(text, strict=False)}?"
    except ValueError:
        return ""
