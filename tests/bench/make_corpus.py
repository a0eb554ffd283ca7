#!/usr/bin/env python3
"""Writes a mixed corpus of English, Chinese and code from the files of a Linux machine. Use it for measurements,
not for publishing.

usage: make_corpus.py OUT.jsonl [--chinese DATA.jsonl...] [--megabytes 95] [--seed 1]

- English: documentation, man pages, read-mes.
- Code: C and C++ headers, Python libraries.
- Chinese: man pages, message catalogues, the Chinese texts of the --chinese files (any jsonl). Because these
  are small, an order-2 character model of them adds more.

Every paragraph is used once (licences occur in many files). Prints the sources.
"""
import argparse
import gettext
import glob
import gzip
import hashlib
import json
import os
import random
import re
import site
import sys
import sysconfig

MAX_FILE = 400_000
CJK = re.compile("[\u4e00-\u9fff]")


def read(path):
    try:
        if os.path.getsize(path) > MAX_FILE:
            return ""
        with (gzip.open if path.endswith(".gz") else open)(path, "rb") as file:
            return file.read(MAX_FILE).decode("utf-8")
    except (OSError, EOFError, UnicodeDecodeError):
        return ""


def plain_roff(text):
    """Returns a man page without its macros, which is close enough to prose."""
    text = re.sub(r'^\.\\".*$', "", text, flags=re.M)
    text = re.sub(r"^\.[A-Za-z]+ ?", "", text, flags=re.M)
    return re.sub(r"\\f[A-Z]|\\&|\\-", lambda m: "-" if m[0] == r"\-" else "", text)


def files(rng, *patterns):
    found = sorted({os.path.realpath(p) for pattern in patterns for p in glob.glob(pattern, recursive=True) if os.path.isfile(p)})
    rng.shuffle(found)
    return found


def strings_of(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, dict)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from strings_of(part)


def chain(texts, rng, size):
    """Returns text of an order-2 character model: natural in words and phrases, not in
    sentences."""
    after = {}
    for text in texts:
        for i in range(len(text) - 2):
            after.setdefault(text[i:i + 2], []).append(text[i + 2])
    starts, made = [t[:2] for t in texts if len(t) > 2], 0
    while made < size:
        out = rng.choice(starts)
        for _ in range(rng.randrange(80, 1200)):
            choices = after.get(out[-2:])
            out += rng.choice(choices) if choices else "\n" + rng.choice(starts)
        made += len(out.encode())
        yield out


class Corpus:
    def __init__(self, path):
        self.file, self.seen, self.bytes = open(path, "w", encoding="utf-8"), set(), {}

    def add(self, kind, text):
        kept = []
        for paragraph in text.split("\n\n"):
            key = hashlib.blake2b(" ".join(paragraph.split()).encode(), digest_size=8).digest()
            if key not in self.seen:
                self.seen.add(key)
                kept.append(paragraph)
        text = "\n\n".join(kept)
        if len(text) < 60:
            return
        self.file.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")
        self.bytes[kind] = self.bytes.get(kind, 0) + len(text.encode())

    def fill(self, kind, texts, size):
        for text in texts:
            self.add(kind, text)
            if self.bytes.get(kind, 0) >= size:
                return


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("output")
    parser.add_argument("--chinese", nargs="*", default=[])
    parser.add_argument("--megabytes", type=float, default=95)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    rng, mega = random.Random(args.seed), args.megabytes * 1e6
    corpus = Corpus(args.output)
    libraries = [sysconfig.get_path("stdlib"), "/usr/lib/python3", *site.getsitepackages()]

    chinese = [plain_roff(read(p)) for p in files(rng, "/usr/share/man/zh_*/**/*")]
    for path in files(rng, "/usr/share/locale/zh_*/LC_MESSAGES/*.mo", "/usr/share/**/zh_*/LC_MESSAGES/*.mo"):
        try:
            with open(path, "rb") as file:
                catalogue = gettext.GNUTranslations(file)._catalog
            chinese.append("\n".join(v for v in catalogue.values() if isinstance(v, str)))
        except (OSError, UnicodeDecodeError, ValueError):
            pass
    for path in args.chinese:
        with open(path, encoding="utf-8") as file:
            chinese += [s for line in file for s in strings_of(json.loads(line)) if len(s) > 40]
    chinese = [t for t in chinese if len(CJK.findall(t)) * 4 > len(t)]
    corpus.fill("Chinese", chinese, 0.2 * mega)
    real = corpus.bytes.get("Chinese", 0)
    if chinese:
        corpus.fill("Chinese", chain(chinese, rng, 0.2 * mega), 0.2 * mega)

    docs = files(rng, "/usr/share/doc/**/*", *(f"{d}/**/*.{e}" for d in libraries for e in ("md", "rst", "txt")))
    pages = files(rng, "/usr/share/man/man*/*.gz")
    english = [*((p, False) for p in docs if not p.endswith((".html", ".json", ".png"))), *((p, True) for p in pages)]
    rng.shuffle(english)
    corpus.fill("English", (plain_roff(read(p)) if page else read(p) for p, page in english), 0.4 * mega)
    code = files(rng, "/usr/include/**/*.h", "/usr/include/**/*.hpp", *(f"{d}/**/*.py" for d in libraries))
    corpus.fill("code", map(read, code), mega - sum(corpus.bytes.values()))
    corpus.file.close()
    with open(args.output, encoding="utf-8") as file:
        lines = file.readlines()
    rng.shuffle(lines)
    with open(args.output, "w", encoding="utf-8") as file:
        file.writelines(lines)
    print(f"{len(lines)} documents, text of " + ", ".join(f"{k} {v / 1e6:.1f} MB" for k, v in corpus.bytes.items())
          + f"; of the Chinese {real / 1e6:.1f} MB are not generated", file=sys.stderr)


main()
