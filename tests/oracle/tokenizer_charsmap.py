#!/usr/bin/env python3
"""Compares tokenizers with the normalizer Precompiled (T5, mT5, XLM-R) with Hugging Face `tokenizers`.

usage: tokenizer_charsmap.py DRIVER [--strings N] [--seed S] [--only FAMILY]

`sentencepiece` compiles the rules. Each tokenizer has a token for every byte, so that equal ids mean equal normalized texts.
Exits with 1 and prints the first differences.
"""
import argparse
import os
import random
import sys
import tempfile

from tokenizers import Regex, normalizers, pre_tokenizers, processors

from tokenizer_oracle import Checks, Driver, hostile
from tokenizer_pieces import PLANTED, SPACE, compare_families, metaspace, unigram

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../src/text/unicode"))
from generate_unicode_table import charsmap, charsmap_of  # noqa: E402

# Characters of all classes of grapheme clusters, with and without a replacement in the rules.
CLUSTERS = ["a", "e", "A", "\r", "\n", "\t", "\u00ad", "\u200b", "\u0301", "\u0300", "\u0308", "\u0345", "\u0903", "\u200d", "\u200c", "\u0600", "\U000110bd",
            "\u212b", "\u00c5", "\ufb01", "\u2460", "\u2122", "\u00a9", "\u263a", "\ufe0f", "\U0001f44d", "\U0001f3fd", "\U0001f1e9", "\U0001f1ea",
            "\u1100", "\u1161", "\u11a8", "\uac00", "\uac01", "\u3131", "\uff76", "\uff9e", "\u304b", "\u3099", "\u0915", "\u0924", "\u094d", "\u0958",
            "\u093c", "\u0e33", "\u0e32", "\u0340", "\u0344", "\u1e9b", "\u0323", "\u3000", " ", "\u2028", "\U0001d173", "\U000e0001", "\x00", "\x7f", SPACE]
RULES = {"a": "X", "e\u0301": "\u00e9", "\u0301": "E", "\u0915": "K", "\u00a9": "C", "\u1161": "V", "\u263a": "", "ab": "B", "\u0600": "P", "\r\n": "N",
         "\u11a8\u0301": "T"}


def families(texts):
    always, decoder = metaspace("always", True)
    blanks = Regex(" {2,}")
    nmt = normalizers.Precompiled(charsmap(normalization_rule_name="nmt_nfkc"))

    def family(normalizer, pre_tokenizer=always, post=None):
        return lambda: unigram(texts, normalizer, pre_tokenizer, decoder, post, byte_fallback=True)
    yield "t5", family(normalizers.Sequence([nmt, normalizers.Strip(left=False, right=True), normalizers.Replace(blanks, SPACE)]),
                       post=processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 2)]))
    yield "xlm-r", family(normalizers.Sequence([nmt, normalizers.Replace(blanks, " ")]), pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), always]),
                          processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)]))
    yield "mt5", family(nmt)
    yield "folded", family(normalizers.Precompiled(charsmap(normalization_rule_name="nmt_nfkc_cf")))
    yield "rules", family(normalizers.Precompiled(charsmap_of(RULES)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("driver")
    parser.add_argument("--strings", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", help="one family")
    args = parser.parse_args()
    rng = random.Random(args.seed)
    checks = Checks()
    texts = [hostile(rng, []) + " the return of her thing and another" for _ in range(300)]
    strings = [hostile(rng, PLANTED) for _ in range(args.strings // 2)]
    strings += ["".join(rng.choice(CLUSTERS) for _ in range(rng.randrange(1, 12))) for _ in range(args.strings)]
    strings += ["", " ", "\r\n", "a\u0301\r\n\u0301", "\u212b\u0301", "\u212b\u0301\u0302", "e\u0301\u0301", "\u200b", "x\u200b"]
    with tempfile.TemporaryDirectory() as folder:
        driver = Driver(args.driver, folder)
        compare_families(driver, checks, rng, families(texts), args.only, folder, strings)
    checks.finish()


if __name__ == "__main__":
    main()
