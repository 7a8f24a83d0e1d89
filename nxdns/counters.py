"""Which counters a ``…Stats`` has."""

from types import GetSetDescriptorType, MemberDescriptorType


def counter_names(stats: type) -> tuple[str, ...]:
    """The attributes of ``stats``, a class of plain counters: its slots, or, where it is compiled
    and has none, what stands for them."""
    descriptors = (MemberDescriptorType, GetSetDescriptorType)
    return tuple(name for name, what in vars(stats).items() if isinstance(what, descriptors))
