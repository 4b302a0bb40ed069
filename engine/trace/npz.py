"""Archives of arrays (.npz), written and read member by member.

Writing needs no copy of an array. Reading compares name, type, dimensions and size of a member
with the schema before memory is allocated for it; nothing is unpickled.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Mapping
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy

from engine.trace.schema import SCHEMA

META = "meta"
MAX_META_BYTES = 4_000_000  # as JSON; 100,000 characters of prompt have at most 1.2 MB
CHUNK = 2**16
LEVEL = 1  # of compression: twice as fast as 6, and drifts become 5 % larger
MOST_RATIO = 1_032  # deflate cannot expand more
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
MAX_READ = 2**18  # a list of 5,000 members; a trace has fewer than 100


class BadArchive(ValueError):
    """A file that does not hold what it declares, or too much; the message says what is wrong."""


class BoundedReads:
    """A file of which at most MAX_READ bytes are read at a time; BadArchive for more.

    zipfile reads the list of an archive's members in one call, whatever its size, and needs 600
    bytes of memory for each: 0.8 GB for a file of 60 MB.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def read(self, size: int = -1) -> bytes:
        """The next `size` bytes; all that are left if it is negative."""
        if size > MAX_READ:
            raise BadArchive("trace: its list of arrays is too long")
        return self._file.read(size)


def write_npz(file: IO[bytes], meta: bytes, arrays: Mapping[str, np.ndarray]) -> None:
    """Write a document and arrays of the schema as a compressed archive."""
    members = {META: np.frombuffer(meta, np.uint8), **arrays}
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=LEVEL) as archive:
        for name, array in members.items():
            array = np.ascontiguousarray(array)
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                npy.write_array_header_1_0(member, npy.header_data_from_array_1_0(array))
                raw = array.reshape(-1).view(np.uint8)
                for start in range(0, len(raw), CHUNK):
                    member.write(raw[start : start + CHUNK].data)


def check_meta_size(size: int) -> None:
    """Refuse a meta of more than MAX_META_BYTES as JSON: in memory it may have 44 times as many."""
    if size > MAX_META_BYTES:
        raise BadArchive(
            f"trace: meta is larger than {MAX_META_BYTES // 1_000_000} MB; shorten the texts in it"
        )


def read_npz(file: IO[bytes], size: int, limit: int) -> tuple[bytes, dict[str, np.ndarray]]:
    """The document and the arrays of an archive of `size` bytes.

    Raises BadArchive if its members unpack to more than `limit` bytes or do not fit the schema, and
    various errors if it is damaged.
    """
    with zipfile.ZipFile(BoundedReads(file)) as archive:
        members = archive.infolist()
        if sum(info.file_size for info in members) > limit:
            raise BadArchive(f"trace: unpacks to more than {limit // 1_000_000} MB")
        if sum(info.compress_size for info in members) > size:
            raise BadArchive("trace: its members are larger than the file")
        found: dict[str, np.ndarray] = {}
        for info in members:
            name = info.filename.removesuffix(".npy")
            if name in found or (name != META and name not in SCHEMA):
                raise BadArchive(f"trace: field {name[:40]!r} is unknown or given twice")
            found[name] = _read_member(archive, info, name)
    if META not in found:
        raise BadArchive("trace: meta is missing")
    return found.pop(META).tobytes(), found


def _read_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, name: str) -> np.ndarray:
    """One array; memory is allocated once its header, type and sizes are checked."""
    if info.compress_type not in METHODS or info.file_size > MOST_RATIO * (info.compress_size + 1):
        raise BadArchive(f"trace: {name} declares more data than it holds")
    with archive.open(info) as member:
        if npy.read_magic(member) != (1, 0):
            raise BadArchive(f"trace: {name} has an unknown header")
        shape, by_columns, dtype = npy.read_array_header_1_0(member)
        expected, dimensions = (np.dtype(np.uint8), 1)
        if name != META:
            expected, dimensions = np.dtype(SCHEMA[name][0]), len(SCHEMA[name][1])
        if dtype != expected or len(shape) != dimensions:
            raise BadArchive(f"trace: {name} should be {expected} of {dimensions} dimensions")
        count = math.prod(shape)
        if min(shape) < 0 or member.tell() + count * dtype.itemsize != info.file_size:
            raise BadArchive(f"trace: {name} declares another size than it has")
        if name == META:
            check_meta_size(count)
        array = np.empty(count, dtype)
        _fill(member, array.view(np.uint8))
    return array.reshape(shape[::-1]).T if by_columns else array.reshape(shape)


def _fill(member: IO[bytes], raw: Any) -> None:
    """Read bytes into all of `raw` [n] uint8; BadArchive if there are fewer."""
    for start in range(0, len(raw), CHUNK):
        part = raw[start : start + CHUNK]
        data = member.read(len(part))
        if len(data) != len(part):
            raise BadArchive("trace: the file ends too early")
        part[:] = np.frombuffer(data, np.uint8)
