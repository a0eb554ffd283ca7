"""Reads the header of a safetensors file. The package safetensors is no part of the torch wheel. Source: the format's own README."""
import json


def safetensors_entries(data):
    """Yields (name, dtype, shape, position of the first byte, number of bytes) of each tensor in the bytes of a file."""
    length = int.from_bytes(data[:8], "little")
    for name, entry in json.loads(bytes(data[8:8 + length])).items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            yield name, entry["dtype"], entry["shape"], 8 + length + begin, end - begin
