"""Rewrites the library search path of an ELF file in place, as chrpath does: no other tool is needed for it.

Source: System V ABI, "Dynamic Section"; man 5 elf.
"""
import struct

DT_NULL, DT_STRTAB, DT_RPATH, DT_RUNPATH = 0, 5, 15, 29
PT_LOAD, PT_DYNAMIC = 1, 2


class NoRoom(Exception):
    """The file's own search path is shorter than the new one."""


def program_headers(data):
    """[(type, offset, address, size in the file)] of a 64-bit little-endian file."""
    if data[:6] != b"\x7fELF\x02\x01":
        raise ValueError("not a 64-bit little-endian ELF file")
    (offset,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    for index in range(count):
        kind, _, begin, address, _, length = struct.unpack_from("<IIQQQQ", data, offset + index * size)
        yield kind, begin, address, length


def dynamic_entries(data):
    """[(position in the file, tag, value)]"""
    for kind, begin, _, length in program_headers(data):
        if kind != PT_DYNAMIC:
            continue
        for position in range(begin, begin + length, 16):
            tag, value = struct.unpack_from("<qQ", data, position)
            if tag == DT_NULL:
                return
            yield position, tag, value


def search_path(data):
    """(position of the entry, position of its text, text), or None if the file has no DT_RPATH and no DT_RUNPATH."""
    entries = list(dynamic_entries(data))
    table = next((value for _, tag, value in entries if tag == DT_STRTAB), None)
    for position, tag, value in entries:
        if tag in (DT_RPATH, DT_RUNPATH):
            address = table + value
            text = next(begin + address - start for kind, begin, start, length in program_headers(data)
                        if kind == PT_LOAD and start <= address < start + length)
            return position, text, data[text:data.index(b"\0", text)].decode()
    return None


def set_search_path(path, new, transitive):
    """Replaces the search path of the file `path`; returns False if it has none. `transitive` makes it DT_RPATH, which is searched for the
    libraries of libraries too; else it becomes DT_RUNPATH. Raises NoRoom."""
    with open(path, "rb") as file:
        data = bytearray(file.read())
    found = search_path(data)
    if found is None:
        return False
    position, text, old = found
    if len(new) > len(old):
        raise NoRoom(f"{path}: the search path '{old}' has no room for '{new}'")
    struct.pack_into("<q", data, position, DT_RPATH if transitive else DT_RUNPATH)
    data[text:text + len(old)] = new.encode().ljust(len(old), b"\0")
    with open(path, "wb") as file:
        file.write(data)
    return True
