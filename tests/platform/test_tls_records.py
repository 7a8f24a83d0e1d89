"""Records are counted where they end, however the stream is cut."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nxdns.platform.tls_records import TlsRecords


def record(length: int, kind: int = 23) -> bytes:
    return bytes([kind, 3, 3]) + length.to_bytes(2, "big") + bytes(length)


@given(
    st.lists(st.sampled_from([0, 1, 4, 5, 31, 300, 16384, 16384 + 256]), max_size=6),
    st.lists(st.integers(0, 40_000), max_size=12),
)
def test_each_is_counted_once_where_its_last_octet_comes(
    lengths: list[int], cuts: list[int]
) -> None:
    stream = b"".join(record(length) for length in lengths)
    ends = [sum(5 + each for each in lengths[: index + 1]) for index in range(len(lengths))]
    edges = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    records = TlsRecords()
    for start, end in pairwise(edges):
        assert records.ended_in(stream[start:end]) == sum(start < each <= end for each in ends)


def test_octet_by_octet() -> None:
    stream = record(3) + record(0) + record(300)
    records = TlsRecords()
    counted = [records.ended_in(stream[at : at + 1]) for at in range(len(stream))]
    assert [at for at, count in enumerate(counted) if count] == [7, 12, 317]


@pytest.mark.parametrize(
    "head",
    [
        pytest.param(b"HTTP/1.1 400 Bad Request", id="plain HTTP"),
        pytest.param(bytes([19, 3, 3, 0, 9]), id="a type that there is none of"),
        pytest.param(bytes([22, 3, 3, 0, 9]), id="a handshake"),
        pytest.param(bytes([23, 2, 0, 0, 9]), id="a version that there is none of"),
        pytest.param(bytes([23, 3, 4, 0, 9]), id="a version that no record names"),
        pytest.param(bytes([23, 3, 3]) + (16384 + 257).to_bytes(2, "big"), id="too long"),
    ],
)
def test_what_may_be_no_record_is_to_be_looked_at_at_once_and_where_it_ends(head: bytes) -> None:
    records = TlsRecords()
    length = int.from_bytes(head[3:5], "big")
    assert records.ended_in(record(7) + head[:5]) == 2
    assert records.ended_in(bytes(length - 1)) == 0
    assert records.ended_in(bytes(1) + record(7)) == 2
