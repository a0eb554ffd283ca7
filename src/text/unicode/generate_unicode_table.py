#!/usr/bin/env python3
"""Writes the Unicode data for the splitters, the added-token matcher, NFC and NFKC.

usage: generate_unicode_table.py CLASSES.json DIR      writes DIR/unicode_table.inc, DIR/nfc_table.inc and DIR/nfkc_table.inc

CLASSES.json maps a class name (L, N, s ... as in the regexes of tokenizer.json) to a list of inclusive code-point ranges.
The word class (\\w of `single_word`) and the normal form come from other libraries inside Hugging Face `tokenizers`, with other
versions of Unicode. Both are measured here on every code point with the module itself (pip install tokenizers), so they are
correct for the version printed in the output.
To add a class, add an entry to CLASSES below and a constant to unicode_class.hpp.
"""
import json
import os
import sys

import tokenizers

CLASSES = {1: ["L"], 2: ["N"], 4: ["s"], 16: ["M"], 32: ["Lu", "Lt", "Lm", "Lo", "M"], 64: ["Ll", "Lm", "Lo", "M"]}
WORD = 8
NFC_ACTIVE = 128
PAGE = 256
LAST = 0x110000
POINTS = [c for c in range(LAST) if not 0xD800 <= c <= 0xDFFF]
HANGUL = range(0xAC00, 0xD7A4)
HANGUL_VOWELS_AND_TAILS = [*range(0x1161, 0x1176), *range(0x11A8, 0x11C3)]

nfc = tokenizers.normalizers.NFC().normalize_str
nfd = tokenizers.normalizers.NFD().normalize_str
nfkd = tokenizers.normalizers.NFKD().normalize_str


def word_flags():
    """A token with single_word does not match when a word character follows it."""
    probe = tokenizers.Tokenizer(tokenizers.models.BPE(vocab={"A": 0}, merges=[]))
    probe.add_tokens([tokenizers.AddedToken("\ue000", single_word=True, normalized=False)])
    flags = bytearray(LAST)
    for start in range(0, len(POINTS), 4096):
        points = POINTS[start:start + 4096]
        for c, found in zip(points, probe.encode_batch(["\ue000" + chr(c) for c in points])):
            flags[c] = 0 if 1 in found.ids else WORD
    return flags


def combining_classes(whole):
    """Orders the combining classes by swaps of characters without decomposition, which NFD sorts.

    Only the order and "none" (0) matter, so classes are numbered from 1.
    """
    lowest, highest = "\u0334", "\u0345"  # classes 1 and 240 of the standard
    moving = [c for c in whole if nfd(chr(c) + lowest) != chr(c) + lowest or nfd(highest + chr(c)) != highest + chr(c)]
    moving = sorted(set(moving) | {ord(lowest), ord(highest)})
    order = [[ord(lowest)]]  # members of each class, in ascending order of classes
    for c in moving:
        def passes(other):  # c sorts before a member of a higher class
            return nfd(chr(other) + chr(c)) == chr(c) + chr(other)
        if c == ord(lowest):
            continue
        low, high = 0, len(order)
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if passes(order[middle][0]) else (middle + 1, high)
        # c is not before order[low - 1]: it has the same class, or a new one after it
        previous = order[low - 1] if low > 0 else None
        if previous and nfd(chr(c) + chr(previous[0])) == chr(c) + chr(previous[0]) and c != previous[0]:
            previous.append(c)
        else:
            order.insert(low, [c])
    return {c: number for number, members in enumerate(order, 1) for c in members}


def normal_form():
    decompositions = {c: [ord(d) for d in nfd(chr(c))] for c in POINTS if c not in HANGUL and nfd(chr(c)) != chr(c)}
    classes = combining_classes([c for c in POINTS if c not in HANGUL and c not in decompositions])
    pairs = {}
    for c, parts in decompositions.items():
        if nfc(chr(c)) != chr(c):
            continue  # never the result of a composition
        first = nfc("".join(map(chr, parts[:-1])))
        assert len(first) == 1 and nfc(first + chr(parts[-1])) == chr(c), hex(c)
        pairs[ord(first), parts[-1]] = c
    active = {c for c in decompositions if nfc(chr(c)) != chr(c)} | set(classes) | {second for _, second in pairs}
    return decompositions, classes, pairs, active | set(HANGUL_VOWELS_AND_TAILS)


def rows(values):
    return "\n".join("    " + ", ".join(map(str, values[i:i + 32])) + "," for i in range(0, len(values), 32))


def head(out, header):
    print("// Made by generate_unicode_table.py with tokenizers", tokenizers.__version__ + "; do not edit.", file=out)
    print(f'#include "text/unicode/{header}"\n\n// clang-format off\nnamespace trireme::text::unicode {{\n', file=out)


def write_classes(path, ranges, active):
    flags = word_flags()
    for bit, names in CLASSES.items():
        for first, last in (r for name in names for r in ranges[name]):
            for c in range(first, last + 1):
                flags[c] |= bit
    for c in active:
        flags[c] |= NFC_ACTIVE
    pages, index = {}, []
    for start in range(0, LAST, PAGE):
        index.append(pages.setdefault(bytes(flags[start:start + PAGE]), len(pages)))
    assert len(pages) <= 256, "page numbers no longer fit a byte"
    with open(path, "w", encoding="utf-8") as out:
        head(out, "unicode_class.hpp")
        print(f"const std::uint8_t kPageOf[{len(index)}] = {{\n{rows(index)}\n}};\n", file=out)
        print(f"const std::uint8_t kPages[{len(pages)}][{PAGE}] = {{", file=out)
        for page in pages:
            print("{\n" + rows(list(page)) + "\n},", file=out)
        print("};\n\n}  // namespace trireme::text::unicode", file=out)


def write_normal_form(path, decompositions, classes, pairs):
    """Writes sorted arrays for binary search. They are used only for text that is not in normal form."""
    parts, starts = [], []
    for c in sorted(decompositions):
        starts.append((c, len(parts), len(decompositions[c])))
        parts += decompositions[c]
    with open(path, "w", encoding="utf-8") as out:
        head(out, "nfc.hpp")
        print(f"const CombiningClass kCombiningClasses[{len(classes)}] = {{", file=out)
        print(rows([f"{{{c}, {classes[c]}}}" for c in sorted(classes)]) + "\n};\n", file=out)
        print(f"const Decomposition kDecompositions[{len(starts)}] = {{", file=out)
        print(rows([f"{{{c}, {at}, {size}}}" for c, at, size in starts]) + "\n};\n", file=out)
        print(f"const std::uint32_t kDecomposed[{len(parts)}] = {{\n{rows(parts)}\n}};\n", file=out)
        print(f"const Composition kCompositions[{len(pairs)}] = {{", file=out)
        print(rows([f"{{{a}, {b}, {pairs[a, b]}}}" for a, b in sorted(pairs)]) + "\n};\n", file=out)
        print("}  // namespace trireme::text::unicode", file=out)


def write_compatible(path):
    """Writes the characters that NFKD replaces and NFD does not."""
    parts, starts = [], []
    for c in POINTS:
        whole = nfkd(chr(c))
        if c not in HANGUL and whole != nfd(chr(c)):
            starts.append((c, len(parts), len(whole)))
            parts += [ord(d) for d in whole]
    with open(path, "w", encoding="utf-8") as out:
        head(out, "nfc.hpp")
        print(f"const Decomposition kCompatible[{len(starts)}] = {{", file=out)
        print(rows([f"{{{c}, {at}, {size}}}" for c, at, size in starts]) + "\n};\n", file=out)
        print(f"const std::uint32_t kCompatibleParts[{len(parts)}] = {{\n{rows(parts)}\n}};\n", file=out)
        print("}  // namespace trireme::text::unicode", file=out)
    print(f"{len(starts)} characters with a compatible form")


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        ranges = json.load(file)
    decompositions, classes, pairs, active = normal_form()
    write_classes(os.path.join(sys.argv[2], "unicode_table.inc"), ranges, active)
    write_normal_form(os.path.join(sys.argv[2], "nfc_table.inc"), decompositions, classes, pairs)
    write_compatible(os.path.join(sys.argv[2], "nfkc_table.inc"))
    print(f"{len(decompositions)} decompositions, {len(classes)} characters in {max(classes.values())} combining classes, "
          f"{len(pairs)} compositions, {len(active)} characters to look at")


if __name__ == "__main__":
    main()
