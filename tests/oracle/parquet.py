#!/usr/bin/env python3
"""Compares data sets of Parquet files that pyarrow wrote with those of the same records as JSON lines.

usage: parquet.py TRIREME_DATA

- `tokenizer encode` gives the same ids for every combination of row groups, codec, page version and
encoding, for texts, large texts, bytes and categories;
- `pack --kind sft` of nested messages with null values gives the same documents;
- a damaged file ends with exit code 3 and one error that names file and row; files of other
formats end with exit code 3 and name the way to convert them.

Exits with 1 and prints all differences.
"""
import json
import os
import random
import subprocess
import sys
import tempfile

import pyarrow as pa
import pyarrow.parquet as pq

RECORDS = 2500
WORDS = ["a", "word", "caf\u00e9", "\u4f60\u597d", "\"quoted\"", "back\\slash", "new\nline", "\u0001", "tab\t", "\U0001f600", "", "12345"]
WRITES = [{"row_group_size": 1, "compression": "snappy"}, {"row_group_size": 1000, "compression": "zstd"},
          {"row_group_size": RECORDS, "compression": "gzip"}, {"row_group_size": RECORDS, "compression": "none", "use_dictionary": False},
          {"row_group_size": 700, "compression": "brotli", "data_page_version": "2.0", "data_page_size": 4096},
          {"row_group_size": 1000, "compression": "lz4", "use_dictionary": False, "column_encoding": {"text": "DELTA_BYTE_ARRAY", "id": "DELTA_BINARY_PACKED"}}]
TYPES = [pa.string(), pa.large_string(), pa.binary(), pa.dictionary(pa.int32(), pa.string())]


class Program:
    def __init__(self, path, folder):
        self.path, self.folder, self.compared, self.different = path, folder, 0, 0

    def run(self, *words):
        return subprocess.run([self.path, *map(str, words)], cwd=self.folder, capture_output=True, text=True)

    def good(self, *words):
        done = self.run(*words)
        if done.returncode != 0:
            sys.exit(f"{words} ended with {done.returncode}: {done.stderr}")
        return done.stdout

    def equal(self, what, got, want):
        self.compared += 1
        if got != want:
            self.different += 1
            print(f"{what}: {str(got)[:400]}, expected {str(want)[:400]}")

    def write(self, name, text):
        with open(os.path.join(self.folder, name), "w", encoding="utf-8") as file:
            file.write(text)

    def read(self, name):
        with open(os.path.join(self.folder, name), "rb") as file:
            return file.read()


def text_of(rng):
    return " ".join(rng.choice(WORDS) for _ in range(rng.randrange(1, 25))) + "."


def check_texts(program, rng):
    rows = [{"text": text_of(rng), "id": i, "score": None if i % 3 else i / 7} for i in range(RECORDS)]
    program.write("in.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    program.good("tokenizer", "train", "--input", "in.jsonl", "--vocab-size", 500, "--output", "tok", "--progress", "none")
    program.good("tokenizer", "encode", "--tokenizer", "tok", "--input", "in.jsonl", "--output", "wanted")
    for number, write in enumerate(WRITES):
        kind = TYPES[number % len(TYPES)]
        table = pa.table({"id": pa.array([row["id"] for row in rows]), "score": pa.array([row["score"] for row in rows]),
                          "text": pa.array([row["text"] for row in rows]).cast(kind)})
        if "column_encoding" in write:
            table = table.drop_columns("score").set_column(1, "text", pa.array([row["text"] for row in rows]))
        pq.write_table(table, os.path.join(program.folder, f"{number}.parquet"), **write)
        program.good("tokenizer", "encode", "--tokenizer", "tok", "--input", f"{number}.parquet", "--output", "found")
        program.equal(f"ids of {write}, {kind}", program.read("found") == program.read("wanted"), True)


def shown(program, name, count):
    return [{key: value for key, value in json.loads(program.good("inspect", name, "--json", "--line", i)).items() if key not in ("source", "offset", "position")}
            for i in range(count)]


def check_messages(program, rng):
    call = {"id": "1", "type": "function", "function": {"name": "add", "arguments": "{\"a\": 1}"}}
    rows = []
    for i in range(24):
        messages = [{"role": "user", "content": text_of(rng), "tool_calls": None, "weight": None}]
        if i % 4 == 1:
            messages += [{"role": "assistant", "content": None, "tool_calls": [call], "weight": None}, {"role": "tool", "content": "2", "tool_calls": None, "weight": None}]
        messages.append({"role": "assistant", "content": text_of(rng), "tool_calls": None, "weight": 1})
        rows.append({"messages": messages, "source": None, "tags": [] if i % 2 else ["x", None]})
    program.write("chat.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    options = ("--kind", "sft", "--template", "minimind-v3", "--tokenizer", "tok", "--seq-len", 2048, "--progress", "none", "--ignore-fields", "source,tags")
    program.good("pack", *options, "--input", "chat.jsonl", "--output", "chat")
    wanted = shown(program, "chat", len(rows))
    for write in ({"row_group_size": 1, "compression": "zstd"}, {"row_group_size": 10, "compression": "snappy"}, {}):
        name = f"chat{write.get('row_group_size', 0)}"
        pq.write_table(pa.Table.from_pylist(rows), os.path.join(program.folder, f"{name}.parquet"), **write)
        program.good("pack", *options, "--input", f"{name}.parquet", "--output", name)
        program.equal(f"documents of {write}", shown(program, name, len(rows)), wanted)


def check_refusals(program):
    def refused(name, *parts):
        done = program.run("pack", "--tokenizer", "tok", "--input", name, "--seq-len", 64, "--output", "refused", "--progress", "none")
        errors = [line for line in done.stderr.splitlines() if "error" in line]
        program.equal(f"{name}: exit code and number of errors", (done.returncode, len(errors)), (3, 1))
        for part in parts:
            program.equal(f"{name}: {part!r} in {done.stderr}", part in done.stderr, True)

    table = pa.table({"text": [f"row {i} with a few words" for i in range(900)]})
    pq.write_table(table, os.path.join(program.folder, "good.parquet"), row_group_size=300, write_page_checksum=True)
    data = bytearray(program.read("good.parquet"))
    column = pq.ParquetFile(os.path.join(program.folder, "good.parquet")).metadata.row_group(1).column(0)
    data[(column.dictionary_page_offset or column.data_page_offset) + column.total_compressed_size - 2] ^= 255  # a byte of the last page
    for name, content in (("damaged.parquet", data), ("cut.parquet", data[:len(data) // 2]), ("empty.parquet", b"PAR1PAR1")):
        with open(os.path.join(program.folder, name), "wb") as file:
            file.write(content)
    refused("damaged.parquet", "damaged.parquet, row 300: the Parquet file is damaged")
    refused("cut.parquet", "cut.parquet: the Parquet file is damaged")
    refused("empty.parquet", "empty.parquet: the Parquet file is damaged")
    program.write("pretty.json", json.dumps({"text": "one record"}, indent=2))
    refused("pretty.json", "pretty.json has a JSON object over several lines", "jq -c")
    program.write("table.csv", "text,id\nwords,1\n")
    refused("table.csv", "table.csv is a csv file", "read_csv")
    with pa.ipc.new_file(os.path.join(program.folder, "table.arrow"), table.schema) as writer:
        writer.write_table(table)
    refused("table.arrow", "table.arrow is an Arrow IPC file", "write_table")


def main():
    rng = random.Random(7)
    with tempfile.TemporaryDirectory() as folder:
        program = Program(os.path.abspath(sys.argv[1]), folder)
        check_texts(program, rng)
        check_messages(program, rng)
        check_refusals(program)
    print(f"{program.compared} compared, {program.different} different")
    return 1 if program.different else 0


if __name__ == "__main__":
    sys.exit(main())
