#!/usr/bin/env python3
"""Compares encode and decode with Hugging Face `tokenizers` for every supported family of
tokenizer.json.

usage: tokenizer_families.py DRIVER [--strings N] [--seed S] [--sweep]

The files of the families are made here: a small model is trained with the family's own
normalizer and pre-tokenizer, then gets its post-processor, flags and added tokens. Strings are
malicious (tokenizer_oracle.hostile), or contain chosen code points between letters, digits,
blanks, line ends, symbols and apostrophes. --sweep tests all of Unicode instead of a selection.
Exits with 1 and prints the first differences.
"""
import argparse
import json
import os
import random
import tempfile
import unicodedata

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from tokenizer_oracle import PLANTED, RESERVED, Checks, Driver, check_variant, hostile, long_pieces

CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
CAPITAL, SMALL = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
LED = r"[^\r\n\p{L}\p{N}]?"
SYMBOLS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
PATTERNS = {
    "llama3": rf"{CONTRACTION}|{LED}\p{{L}}+|\p{{N}}{{1,3}}|{SYMBOLS}|{SPACES}",
    "qwen2": rf"{CONTRACTION}|{LED}\p{{L}}+|\p{{N}}|{SYMBOLS}|{SPACES}",
    "qwen3.5": rf"{CONTRACTION}|{LED}[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{SPACES}",
    "cl100k": r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s",
    "o200k": rf"{LED}{CAPITAL}*{SMALL}+{CONTRACTION}?|{LED}{CAPITAL}+{SMALL}*{CONTRACTION}?|\p{{N}}{{1,3}}"
             rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{SPACES}",
    "tekken": rf"{LED}{CAPITAL}*{SMALL}+|{LED}{CAPITAL}+{SMALL}*|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{SPACES}",
    "gpt2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
}
CONTEXTS = ["a{}b", "A{}B", "a{}B", "'{}", "a'{}x", "A'{}", " {}x", " {}1", "1{}2", "({}x", "(({}", "\n{}\n", ";\n{}/\n{}", " {} ", "\t{}{}",
            "{}'s", "{}'S{}", "{}e{}E", "\u0301{}A", "A{}\u0301", "中{}A", "A{}中a", "{}\u3000{}"]


def split(pattern, **byte_level):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(PATTERNS[pattern]), "isolated"),
                                    pre_tokenizers.ByteLevel(**{"add_prefix_space": False, "use_regex": False, **byte_level})])


def template(*names):
    """Puts BOS before the text, and any other special tokens after it."""
    pieces = " ".join([names[0], "$A", *names[1:]])
    return processors.TemplateProcessing(single=pieces, pair=pieces + " $B:1", special_tokens=[(n, RESERVED.index(n)) for n in names])


def families():
    """(name, normalizer, pre-tokenizer, post-processor, ignore_merges)"""
    plain, pre = processors.ByteLevel(trim_offsets=False), pre_tokenizers
    cls, sep = ("<|im_start|>", 1), ("<|im_end|>", 2)
    yield "gpt2", None, pre.ByteLevel(add_prefix_space=False), plain, False
    yield "roberta", None, pre.ByteLevel(add_prefix_space=True), processors.RobertaProcessing(sep, cls), False
    yield "llama3", None, split("llama3"), processors.Sequence([plain, template("<|im_start|>")]), True
    yield "qwen2", normalizers.NFC(), split("qwen2"), plain, False
    yield "qwen3.5", normalizers.Sequence([normalizers.NFC()]), split("qwen3.5"), plain, False
    yield "cl100k", None, split("cl100k"), plain, True
    yield "o200k", None, split("o200k"), template("<|im_start|>", "<|im_end|>"), True
    yield "tekken", None, split("tekken"), processors.BertProcessing(sep, cls), True
    yield "gpt2-split", normalizers.Sequence([]), split("gpt2", add_prefix_space=True), None, False
    yield "twice", normalizers.NFC(), split("llama3", use_regex=True), processors.Sequence([plain, processors.Sequence([template("<|endoftext|>", "<|im_end|>")])]), False
    yield "nfkc", normalizers.Sequence([normalizers.NFC(), normalizers.NFKC()]), split("qwen2"), plain, False
    yield "starcoder", None, pre.Sequence([pre.Digits(individual_digits=True), pre.ByteLevel(add_prefix_space=False)]), plain, False
    yield "digits", None, pre.Sequence([pre.Sequence([pre.Digits()]), pre.ByteLevel(add_prefix_space=True)]), plain, False


def make(texts, normalizer, pre_tokenizer, post_processor, ignore_merges):
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=1500, special_tokens=RESERVED, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_tokens([AddedToken("return", single_word=True), AddedToken("[L]", lstrip=True), AddedToken("[R]", rstrip=True, normalized=False),
                          AddedToken("cafe\u0301", normalized=True), AddedToken("e\u0301t", normalized=False), AddedToken("[LR]", lstrip=True, rstrip=True),
                          AddedToken("\u1100\u1161", single_word=True), AddedToken("\u212b", normalized=True)])
    if post_processor is not None:
        tokenizer.post_processor = post_processor
    return tokenizer.to_str()


def chosen_points(rng, sweep):
    """Returns the code points where the kind of character changes, and some others; with --sweep
    all that are not deep in unassigned planes."""
    points = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
    if sweep:
        return [c for c in points if c < 0x33480 or 0xE0000 <= c < 0xE0200 or c % 997 == 0]
    kinds = [(unicodedata.category(chr(c)), unicodedata.combining(chr(c)) > 0, unicodedata.decomposition(chr(c)) != "") for c in points]
    changes = [c for i, c in enumerate(points) if i == 0 or kinds[i] != kinds[i - 1]]
    return [*range(0x180), *rng.sample(changes, 1500), *rng.sample(points[:0x20000], 1500), 0x17F, 0x212A, 0x11938, 0x11DE0, 0x16FF4, 0x16FF6]


def strings_in_contexts(rng, points):
    """Puts some dozen code points into a string, so that a sweep is not a million calls."""
    for context in CONTEXTS:
        for start in range(0, len(points), 24):
            yield "".join(context.replace("{}", chr(c)) + rng.choice(["", " ", "\n", "x", "7", "'"]) for c in points[start:start + 24])


def strings_of_marks(rng, count):
    """Returns the code points that normal form C reorders and joins: letters with marks,
    conjoining Hangul, parts of compositions."""
    marks = [c for c in range(0x30000) if unicodedata.combining(chr(c))]
    parts = [ord(d) for c in range(0x30000) if unicodedata.decomposition(chr(c)) for d in unicodedata.normalize("NFD", chr(c))]
    whole = [c for c in range(0x30000) if unicodedata.decomposition(chr(c)) and not unicodedata.decomposition(chr(c)).startswith("<")]
    hangul = [*range(0x1100, 0x1113), *range(0x1160, 0x1177), *range(0x11A6, 0x11C4), 0xAC00, 0xAC01, 0xAC1C, 0xD7A3]
    kinds = [marks, parts, whole, hangul, [0x61, 0x41, 0x20, 0x11935, 0x11930, 0x4E00]]
    for _ in range(count):
        yield "".join(chr(rng.choice(rng.choice(kinds))) for _ in range(rng.randrange(1, 24)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("driver")
    parser.add_argument("--strings", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sweep", action="store_true")
    parser.add_argument("--only", help="one family")
    args = parser.parse_args()
    rng = random.Random(args.seed)
    checks = Checks()
    planted = PLANTED + ["café", "cafe\u0301", "e\u0301t", "ét", "가", "Å", "\u0301", "DON'T", "we'Ve", "I'M", "HTTPServer", "fooBar", "//\n/", "\r\n", "  \n\t "]
    texts = [hostile(rng, planted) for _ in range(1500)]
    strings = [hostile(rng, planted) for _ in range(args.strings)] + long_pieces(rng) + [""]
    strings += strings_in_contexts(rng, chosen_points(rng, args.sweep))
    strings += strings_of_marks(rng, 20000 if args.sweep else 1500)
    with tempfile.TemporaryDirectory() as folder:
        driver = Driver(args.driver, folder)
        for name, *parts in families():
            if args.only in (None, name):
                check_variant(driver, checks, rng, name, make(texts, *parts), strings, folder)
    checks.finish()


main()
