#!/usr/bin/env python3
"""Writes unicode_table.inc: the character classes that the splitters and the added-token matcher need.

usage: generate_unicode_table.py CLASSES.json > unicode_table.inc

CLASSES.json maps a class name (L, N, s, as in the regexes of tokenizer.json) to a list of inclusive code-point ranges.
The word class (\\w of `single_word`) belongs to another regex engine in Hugging Face `tokenizers`; it is measured here
on every code point with that module (pip install tokenizers), so it is right for the version printed in the output.
A new class: one more line in CLASSES below and one constant in unicode_class.hpp.
"""
import json
import sys

import tokenizers

CLASSES = [("L", 1), ("N", 2), ("s", 4)]
WORD = 8
PAGE = 256
LAST = 0x110000


def word_flags():
    """A token with single_word does not match when a word character follows it."""
    probe = tokenizers.Tokenizer(tokenizers.models.BPE(vocab={"A": 0}, merges=[]))
    probe.add_tokens([tokenizers.AddedToken("\ue000", single_word=True, normalized=False)])
    flags = bytearray(LAST)
    for start in range(0, LAST, 4096):
        points = [c for c in range(start, start + 4096) if not 0xD800 <= c <= 0xDFFF]
        for c, found in zip(points, probe.encode_batch(["\ue000" + chr(c) for c in points])):
            flags[c] = 0 if 1 in found.ids else WORD
    return flags


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        ranges = json.load(file)
    flags = word_flags()
    for name, bit in CLASSES:
        for first, last in ranges[name]:
            for c in range(first, last + 1):
                flags[c] |= bit
    pages, index = {}, []
    for start in range(0, LAST, PAGE):
        index.append(pages.setdefault(bytes(flags[start:start + PAGE]), len(pages)))
    assert len(pages) <= 256, "page numbers no longer fit a byte"

    def rows(values):
        return "\n".join("    " + ", ".join(map(str, values[i:i + 32])) + "," for i in range(0, len(values), 32))

    print("// Made by generate_unicode_table.py with tokenizers", tokenizers.__version__ + "; do not edit.")
    print('#include "text/unicode_class.hpp"\n\n// clang-format off\nnamespace trireme::unicode {\n')
    print(f"const std::uint8_t kPageOf[{len(index)}] = {{\n{rows(index)}\n}};\n")
    print(f"const std::uint8_t kPages[{len(pages)}][{PAGE}] = {{")
    for page in pages:
        print("{\n" + rows(list(page)) + "\n},")
    print("};\n\n}  // namespace trireme::unicode")


main()
