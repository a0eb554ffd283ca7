#!/usr/bin/env python3
"""Writes the Unicode data for the splitters, the added-token matcher, normal forms, lower case and grapheme clusters.

usage: generate_unicode_table.py CLASSES.json DIR      writes all files below in DIR: unicode_table.inc, nfc_table.inc, nfkc_table.inc
       generate_unicode_table.py --graphemes DIR       writes grapheme_table.inc only
       generate_unicode_table.py --letters DIR         writes letter_table.inc only (lower case and accents)

CLASSES.json maps a class name (L, N, s ... as in the regexes of tokenizer.json) to a list of inclusive code-point ranges.
The word class (\\w of `single_word`) and the normal form come from other libraries inside Hugging Face `tokenizers`, with other
versions of Unicode. Both are measured here on every code point with the module itself (pip install tokenizers), so they are
correct for the version printed in the output. The properties of grapheme clusters are measured with the normalizer Precompiled,
which treats clusters below six bytes as one character. Its charsmap comes from `sentencepiece` (pip install sentencepiece).
To add a class, add an entry to CLASSES below and a constant to unicode_class.hpp.
"""
import io
import json
import os
import sys
import tempfile

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


def write_letters(path):
    """Writes the characters that Lowercase replaces, and the ranges of characters that StripAccents removes."""
    lower, strip = tokenizers.normalizers.Lowercase().normalize_str, tokenizers.normalizers.StripAccents().normalize_str
    parts, starts, ranges = [], [], []
    for c in POINTS:
        if lower(chr(c)) != chr(c):
            starts.append((c, len(parts), len(lower(chr(c)))))
            parts += [ord(d) for d in lower(chr(c))]
        if strip(chr(c)) != "":
            continue
        if ranges and ranges[-1][1] == c - 1:
            ranges[-1][1] = c
        else:
            ranges.append([c, c])
    with open(path, "w", encoding="utf-8") as out:
        head(out, "letters.hpp")
        print(f"const Lowered kLowered[{len(starts)}] = {{", file=out)
        print(rows([f"{{{c}, {at}, {size}}}" for c, at, size in starts]) + "\n};\n", file=out)
        print(f"const std::uint32_t kLoweredParts[{len(parts)}] = {{\n{rows(parts)}\n}};\n", file=out)
        print(f"const AccentRange kAccents[{len(ranges)}] = {{", file=out)
        print(rows([f"{{{first}, {last}}}" for first, last in ranges]) + "\n};\n", file=out)
        print("}  // namespace trireme::text::unicode", file=out)
    print(f"{len(starts)} capitals, {len(ranges)} ranges of accents")


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def message_fields(data):
    """Returns the length-delimited fields of a protobuf message by number; a repeated field has its last value."""
    found, at = {}, 0
    while at < len(data):
        key, at = varint(data, at)
        size, at = varint(data, at) if key & 7 in (0, 2) else ({1: 8, 5: 4}[key & 7], at)
        if key & 7 == 0:
            continue
        if key & 7 == 2:
            found[key >> 3] = data[at:at + size]
        at += size
    return found


def charsmap(**options):
    """Returns the compiled rules of a SentencePiece model that is trained with the options."""
    import sentencepiece
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(["a b"] * 9), model_writer=model, vocab_size=9, minloglevel=2,
                                             hard_vocab_limit=False, **options)
    normalizer_spec = message_fields(model.getvalue())[3]
    return message_fields(normalizer_spec)[2]


def charsmap_of(rules):
    """Returns the compiled rules that replace the keys of `rules` by their values."""
    def points(text):
        return " ".join(f"{ord(c):X}" for c in text)
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as tsv:
        tsv.writelines(f"{points(key)}\t{points(value)}\n" for key, value in rules.items())
        tsv.flush()
        return charsmap(normalization_rule_tsv=tsv.name)


def write_graphemes(path):
    """In a cluster below six bytes, the replacement of the first character stands for the whole cluster. So the last mark of each
    probe tells if a cluster ended before it. Regional indicators and Hangul are not measured."""
    ka, virama, copyright_sign, joiner, mark, end = "\u0915", "\u094d", "\u00a9", "\u200d", "\u0301", "\u0302"
    n = tokenizers.normalizers.Precompiled(charsmap_of({"a": "X", mark: "E", copyright_sign: "C", ka: "K"})).normalize_str

    def properties(c):
        joins = n("a" + c) == "X"  # the cluster before it
        if joins:
            return 2 + 32 * n(ka + c + ka + end).endswith(end) + 64 * n(ka + c + virama + ka + end).endswith(end)
        control = c != "a" and not n(c + mark + end).endswith(end)  # ends a cluster
        prepend = n(c + "a" + end).endswith(end)                    # joins the character after it
        pictographic = joiner in n(copyright_sign + joiner + c)
        consonant = n(c + virama + ka + end).endswith(end)          # consonant + linker + consonant
        return control + 4 * prepend + 8 * pictographic + 16 * consonant

    ranges = []
    for c in POINTS:
        flags = properties(chr(c))
        if ranges and ranges[-1][2] == flags and ranges[-1][1] == c - 1:
            ranges[-1][1] = c
        elif flags:
            ranges.append([c, c, flags])
    with open(path, "w", encoding="utf-8") as out:
        head(out, "graphemes.hpp")
        print(f"const GraphemeRange kGraphemeRanges[{len(ranges)}] = {{", file=out)
        print(rows([f"{{{first}, {last}, {flags}}}" for first, last, flags in ranges]) + "\n};\n", file=out)
        print(f"const std::size_t kNumGraphemeRanges = {len(ranges)};\n\n}}  // namespace trireme::text::unicode", file=out)
    print(f"{len(ranges)} ranges of grapheme properties")


def main():
    if sys.argv[1] == "--letters":
        write_letters(os.path.join(sys.argv[2], "letter_table.inc"))
        return
    write_graphemes(os.path.join(sys.argv[2], "grapheme_table.inc"))
    if sys.argv[1] == "--graphemes":
        return
    with open(sys.argv[1], encoding="utf-8") as file:
        ranges = json.load(file)
    decompositions, classes, pairs, active = normal_form()
    write_classes(os.path.join(sys.argv[2], "unicode_table.inc"), ranges, active)
    write_normal_form(os.path.join(sys.argv[2], "nfc_table.inc"), decompositions, classes, pairs)
    write_compatible(os.path.join(sys.argv[2], "nfkc_table.inc"))
    write_letters(os.path.join(sys.argv[2], "letter_table.inc"))
    print(f"{len(decompositions)} decompositions, {len(classes)} characters in {max(classes.values())} combining classes, "
          f"{len(pairs)} compositions, {len(active)} characters to look at")


if __name__ == "__main__":
    main()
