#!/usr/bin/env python3
"""Compares the tokenizer with Hugging Face `tokenizers` and `transformers`: training, files,
ids, text, refusals.

usage: tokenizer_oracle.py DRIVER [--strings N] [--seed S]

Strings are generated here (malicious ones: see hostile()). With TRIREME_TEST_DATA=DIR, the texts
of DIR/*.jsonl (a field "text" or conversations) are compared as well. Exits with 1 and prints
the first differences.
"""
import argparse
import copy
import glob
import json
import os
import random
import subprocess
import sys
import tempfile

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

RESERVED = (["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
            + [f"<|{n}_{e}|>" for n in ("object_ref", "box", "quad") for e in ("start", "end")]
            + [f"<|{n}|>" for n in ("vision_start", "vision_end", "vision_pad", "image_pad", "video_pad",
                                    "audio_start", "audio_end", "audio_pad")]
            + ["<tts_pad>", "<tts_text_bos>", "<tts_text_eod>", "<tts_text_bos_single>"]
            + [f"<{s}{n}>" for n in ("tool_call", "tool_response", "think") for s in ("", "/")]
            + [f"<|buffer{i}|>" for i in range(1, 10)])
SPACES = [chr(c) for c in (9, 10, 11, 12, 13, 32, 0x85, 0xA0, 0x1680, 0x2003, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000)]
ODD = [chr(c) for c in (0, 1, 0x7F, 0xAD, 0x180E, 0x200B, 0x200D, 0x2060, 0xFEFF, 0xFFFD, 0xFFFF, 0x10FFFF, 0x345, 0x301, 0x20DD,
                        0x17F, 0x130, 0xDF, 0x2160, 0xB2, 0x660, 0x966, 0x1D7D9, 0x10D40, 0x1C80, 0xA7DA, 0x11F50)]
WORDS = ["the", "don't", "WE'LL", "I'm", "'s", "'ve", "'re'd", "''t", " 'm", "return", "abc123", "3.14", "世界", "你好，", "。", "мир",
         "שלום", "नमस्ते", "👍🏽", "👨‍👩‍👧", "🇩🇪", "é", "e\u0301", "İ", "ß", "_x_", "-->", "====", "\\n", '"', "{\"a\":1}"]


class Checks:
    def __init__(self):
        self.compared, self.different = {}, 0

    def equal(self, kind, ours, theirs, what):
        self.compared[kind] = self.compared.get(kind, 0) + 1
        if ours != theirs:
            self.different += 1
            if self.different <= 10:
                print(f"DIFFERENT {kind}: {what!r}\n  ours   {str(ours)[:300]}\n  theirs {str(theirs)[:300]}")

    def finish(self):
        """Prints the numbers of comparisons, and exits with 1 if there are differences."""
        for kind, count in self.compared.items():
            print(f"{count:8d} compared: {kind}")
        print(f"{sum(self.compared.values())} comparisons, {self.different} differences")
        sys.exit(1 if self.different else 0)


def hostile(rng, tokens):
    """Returns one string of a random mixture; `tokens` are added tokens to insert."""
    def any_char():
        while True:
            c = rng.randrange(rng.choice([0x80, 0x800, 0x3100, 0xA000, 0x20000, 0x110000]))
            if not 0xD800 <= c <= 0xDFFF:
                return chr(c)

    makers = [lambda: rng.choice(SPACES) * rng.randrange(1, 4), lambda: rng.choice(ODD), lambda: rng.choice(WORDS), any_char,
              lambda: " " + rng.choice(WORDS), lambda: chr(rng.randrange(0x4E00, 0x9FFF)) * rng.randrange(1, 3),
              lambda: rng.choice(tokens) if tokens else "", lambda: (rng.choice(tokens) if tokens else "<")[:-1],
              lambda: "".join(chr(rng.randrange(97, 102)) for _ in range(rng.randrange(1, 12))), lambda: str(rng.randrange(10**6)),
              lambda: rng.choice(["'", "’", "<", "|", "<|", " "])]
    chosen = rng.sample(makers, rng.randrange(1, len(makers) + 1))
    return "".join(rng.choice(chosen)() for _ in range(rng.choice([0, 1, 2, 3, 5, 8, 13, 40])))


def long_pieces(rng):
    return (["a" * 3000, "ab" * 1500, " " * 3000, "\n" * 2999 + "x", "的" * 3000, "!" * 5000, "1" * 3001, "é" * 1777]
            + ["".join(chr(rng.randrange(0x4E00, 0x5200)) for _ in range(n)) for n in (1, 48, 49, 100, 1500, 3000)]
            + ["".join(rng.choice("abcde") for _ in range(n)) for n in (14, 15, 16, 17, 47, 48, 49, 255, 256, 257, 9000)])


def texts_of(row):
    if "text" in row:
        yield row["text"]
    for key in ("conversations", "chosen", "rejected"):
        for turn in row.get(key, []):
            if isinstance(turn.get("content"), str):
                yield turn["content"]


def shared_texts():
    folder = os.environ.get("TRIREME_TEST_DATA")
    texts = {}
    for path in sorted(glob.glob(os.path.join(folder, "*.jsonl"))) if folder else []:
        with open(path, encoding="utf-8") as file:
            texts[os.path.basename(path)] = [t for line in file for t in texts_of(json.loads(line))]
    return texts


def write_lines(path, rows):
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


class Driver:
    def __init__(self, program, folder):
        self.program, self.folder = program, folder

    def run(self, *args, fails=False):
        done = subprocess.run([self.program, *args], capture_output=True, text=True)
        if fails:
            return done.returncode, done.stderr
        if done.returncode != 0:
            sys.exit(f"driver {args[:2]} failed with {done.returncode}: {done.stderr[:500]}")
        return done.stdout

    def map(self, command, tokenizer, rows):
        source, target = os.path.join(self.folder, "in.jsonl"), os.path.join(self.folder, "out.jsonl")
        write_lines(source, rows)
        self.run(command, tokenizer, source, target)
        with open(target, encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    def train(self, name, texts, options):
        folder = os.path.join(self.folder, name)
        source, chosen = os.path.join(self.folder, "train.jsonl"), os.path.join(self.folder, "options.json")
        write_lines(source, [{"text": t} for t in texts])
        with open(chosen, "w", encoding="utf-8") as file:
            json.dump(options, file)
        print(" ", name, self.run("train", folder, chosen, source).strip())
        return folder


def hf_train(texts, options, folder):
    """Returns the file that save() writes, including MiniMind's edit of the special flags if its
    tokens are used."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    reserved = options.get("reserved", RESERVED)
    trainer = trainers.BpeTrainer(vocab_size=options.get("vocab_size", 6400), special_tokens=reserved, show_progress=False,
                                  min_frequency=options.get("min_frequency", 0), max_token_length=options.get("max_token_length"),
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    if options.get("lines"):  # train(files) reads by line and keeps the newline
        path = os.path.join(folder, "corpus.txt")
        with open(path, "w", encoding="utf-8", newline="") as file:
            file.write(texts[0])
        tokenizer.train([path], trainer)
    else:
        tokenizer.train_from_iterator(texts, trainer)
    state = json.loads(tokenizer.to_str())
    if reserved is RESERVED:
        for token in state["added_tokens"][21:]:
            token["special"] = False
    path = os.path.join(folder, "hf.json")
    Tokenizer.from_str(json.dumps(state)).save(path)
    with open(path, "rb") as file:
        return file.read()


def check_training(driver, checks, rng, shared, folder):
    cases = {}
    mixed = [hostile(rng, RESERVED) for _ in range(2000)]
    cases["hostile"] = (mixed, {"vocab_size": 1200})
    cases["hostile-lines"] = (["\n".join(mixed).replace("\r", "")], {"vocab_size": 900, "lines": True})
    cases["min-frequency"] = (mixed, {"vocab_size": 2000, "min_frequency": 7})
    cases["max-length"] = (mixed, {"vocab_size": 1200, "max_token_length": 4})
    cases["stops-early"] = (["abababab abab", "aaaa", ""], {"vocab_size": 6400})
    cases["empty"] = ([], {"vocab_size": 292})
    cases["collisions"] = (["abcabcabd the then other " * 3, "cabcab abcd"] * 4,
                           {"vocab_size": 320, "reserved": ["a", "ab", "abc", "the", "Ġthe", "é", "<s>"]})
    for seed in range(12):  # few letters: many ties and overlapping pairs
        letters = "ab" if seed < 4 else "abc" if seed < 8 else "aé的 "
        words = ["".join(rng.choice(letters) for _ in range(rng.randrange(1, 60))) for _ in range(300)]
        cases[f"ties-{seed}"] = (words, {"vocab_size": 800, "reserved": ["aba"] if seed % 2 else []})
    if "pretrain.jsonl" in shared:
        cases["pretrain"] = (shared["pretrain.jsonl"], {})
    folders = {}
    for name, (texts, options) in cases.items():
        folders[name] = driver.train(name, texts, options)
        with open(os.path.join(folders[name], "tokenizer.json"), "rb") as file:
            ours = file.read()
        checks.equal("trained files", ours, hf_train(texts, options, folder), name)
    return folders.get("pretrain", folders["hostile"])


def variants(base):
    """Returns names and tokenizer.json texts made from one trained model."""
    state = json.loads(base)
    yield "plain", base
    for name, part, key, value in (("prefix-space", "pre_tokenizer", "add_prefix_space", True), ("no-regex", "pre_tokenizer", "use_regex", False),
                                   ("ignore-merges", "model", "ignore_merges", True)):
        changed = copy.deepcopy(state)
        changed[part][key] = value
        yield name, json.dumps(changed, ensure_ascii=False)
    legacy = copy.deepcopy(state)
    legacy["model"]["merges"] = ["#version: 0.2"] + [" ".join(m) for m in legacy["model"]["merges"]]
    yield "legacy-merges", json.dumps(legacy)
    shuffled = copy.deepcopy(state)  # a repeated pair and another order of merges
    order = shuffled["model"]["merges"]
    order[10:10] = [order[40], order[80], order[10]]
    yield "repeated-merge", json.dumps(shuffled)

    def with_added(*tokens):
        tokenizer = Tokenizer.from_str(base)
        for token in tokens:
            tokenizer.add_tokens([token])
        return tokenizer

    flags = with_added(AddedToken("return", single_word=True), AddedToken("[L]", lstrip=True), AddedToken("[R]", rstrip=True),
                       AddedToken("[LR]", lstrip=True, rstrip=True, normalized=False), AddedToken("[LR]x", single_word=True),
                       AddedToken("世界", single_word=True, normalized=False), AddedToken(" the"), AddedToken("'s", normalized=False),
                       AddedToken("\n\n", rstrip=True), AddedToken("\n", normalized=False), AddedToken("👍", lstrip=True, special=True),
                       AddedToken("<|im"), AddedToken("é"), AddedToken("a"), AddedToken("don"))
    yield "flags", flags.to_str()
    prefixed = with_added(AddedToken("return", rstrip=True), AddedToken("世"))
    prefixed.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    prefixed.post_processor = processors.TemplateProcessing(
        single="<|im_start|> $A <|im_end|> <|endoftext|>", pair="$A $B:1",
        special_tokens=[("<|im_start|>", 1), ("<|im_end|>", 2), ("<|endoftext|>", 0)])
    yield "template", prefixed.to_str()
    sequence = with_added()
    sequence.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False),
                                                   processors.TemplateProcessing(single="<|im_start|> $A", special_tokens=[("<|im_start|>", 1)])])
    yield "sequence", sequence.to_str()


PLANTED = RESERVED + ["return", "[L]", "[R]", "[LR]", "[LR]x", "世界", " the", "'s", "\n\n", "\n", "👍", "<|im", "é", "a", "don", "世"]


def check_variant(driver, checks, rng, name, text, strings, folder):
    path = os.path.join(folder, name + ".json")
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    theirs = Tokenizer.from_str(text)
    bare = json.loads(text)
    bare["added_tokens"] = []
    bare = Tokenizer.from_str(json.dumps(bare))
    ours = driver.map("encode", path, [{"text": s} for s in strings])
    expected = [e.ids for e in theirs.encode_batch(strings, add_special_tokens=True)]
    expected_raw = [e.ids for e in bare.encode_batch(strings, add_special_tokens=False)]
    assert len(ours) == len(strings)
    for s, got, want, raw in zip(strings, ours, expected, expected_raw):
        checks.equal("ids " + name, got["ids"], want, s)
        checks.equal("ids, no added tokens, " + name, got["raw"], raw, s)
    size = theirs.get_vocab_size()
    lists = expected[:500] + [[rng.randrange(size + 5) for _ in range(rng.randrange(30))] for _ in range(500)]
    for ids, got in zip(lists, driver.map("decode", path, [{"ids": ids} for ids in lists])):
        checks.equal("text " + name, got["all"], theirs.decode(ids, skip_special_tokens=False), ids)
        checks.equal("text, special skipped, " + name, got["skip"], theirs.decode(ids, skip_special_tokens=True), ids)
        checks.equal("text, streamed, " + name, got["stream"], got["all"], ids)


def check_refusals(driver, checks, base, folder):
    """Checks that every change is refused with exit code 3 and a message that names the part."""
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    split = {"type": "Split", "pattern": {"Regex": r"\p{N}{1,3}"}, "behavior": "Isolated", "invert": False}
    sequence = {"type": "Sequence", "pretokenizers": [byte_level, {"type": "Digits", "individual_digits": True}]}
    roberta = {"type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 1], "trim_offsets": True, "add_prefix_space": True}
    cases = [("NFKD", ["normalizer"], {"type": "NFKD"}), ("Replace", ["normalizer"], {"type": "Sequence", "normalizers": [
                 {"type": "NFC"}, {"type": "Replace", "pattern": {"String": " "}, "content": "_"}]}),
             ("NFKC", ["pre_tokenizer"], {"type": "NFKC"}), ("after ByteLevel", ["pre_tokenizer"], sequence),
             ("no ByteLevel", ["pre_tokenizer"], {"type": "Sequence", "pretokenizers": []}), ("pre_tokenizer", ["pre_tokenizer"], None),
             ("{1,3}", ["pre_tokenizer"], split), ("Removed", ["pre_tokenizer"], {**split, "behavior": "Removed"}),
             ("invert", ["pre_tokenizer"], {**split, "invert": True}), ("String", ["pre_tokenizer"], {**split, "pattern": {"String": " "}}),
             ("Punctuation", ["pre_tokenizer"], {"type": "Sequence", "pretokenizers": [{"type": "Punctuation", "behavior": "Isolated"}, byte_level]}),
             ("Metaspace", ["decoder"], {"type": "Metaspace"}), ("decoder", ["decoder"], None),
             ("Fuse", ["decoder"], {"type": "Sequence", "decoders": [{"type": "Fuse"}, byte_level]}), ("must be an array", ["model", "type"], "Unigram"), ("WordPiece", ["model", "type"], "WordPiece"),
             ("dropout", ["model", "dropout"], 0.1), ("continuing_subword_prefix", ["model", "continuing_subword_prefix"], "##"),
             ("end_of_word_suffix", ["model", "end_of_word_suffix"], "</w>"), ("truncation", ["truncation"], {"max_length": 5}),
             ("padding", ["padding"], {}), ("cls", ["post_processor"], {"type": "RobertaProcessing"}), ("version", ["version"], "2.0"),
             ("two steps", ["post_processor"], {"type": "Sequence", "processors": [roberta, roberta]}),
             ("merges[0]", ["model", "merges", 0], ["a", "ZZZZ"]), ("merges[1]", ["model", "merges", 1], "a b c"),
             ("added_tokens[3]", ["added_tokens", 3, "id"], 9), ("vocab", ["model", "vocab"], {"a": 0}),
             ("vocab", ["model", "vocab", "a"], 4294967295), ("vocab", ["model", "vocab", "a"], -1), ("vocab", ["model", "vocab", "a"], 5)]
    for word, keys, value in cases:
        state = json.loads(base)
        at = state
        for key in keys[:-1]:
            at = at[key]
        at[keys[-1]] = value
        path = os.path.join(folder, "refused.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(state, file)
        code, message = driver.run("encode", path, os.devnull, os.devnull, fails=True)
        checks.equal("refusals", (code, word in message), (3, True), (keys, value, message))


def check_transformers(checks, folder, strings):
    from transformers import AutoTokenizer
    loaded = AutoTokenizer.from_pretrained(folder)
    plain = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
    for s in strings[:300]:
        checks.equal("AutoTokenizer", loaded(s)["input_ids"], plain.encode(s).ids, s)
        checks.equal("AutoTokenizer decode", loaded.decode(plain.encode(s).ids), plain.decode(plain.encode(s).ids, skip_special_tokens=False), s)
    facts = (loaded.bos_token_id, loaded.eos_token_id, loaded.pad_token_id, loaded.unk_token_id, loaded.model_max_length,
             loaded.model_input_names, loaded.clean_up_tokenization_spaces, len(loaded))
    checks.equal("AutoTokenizer facts", facts, (1, 2, 0, 0, 131072, ["input_ids", "attention_mask"], False, plain.get_vocab_size()), folder)
    chat = loaded.apply_chat_template([{"role": "user", "content": "hi"}], tokenize=False, add_generation_prompt=True)
    checks.equal("chat template", chat, "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n", folder)
    flags = [(t.content, t.special) for _, t in sorted(loaded.added_tokens_decoder.items())]
    checks.equal("added tokens", flags, [(c, i < 21) for i, c in enumerate(RESERVED)], folder)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("driver")
    parser.add_argument("--strings", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    checks = Checks()
    shared = shared_texts()
    if not shared:
        print("TRIREME_TEST_DATA is not set: generated strings only")
    with tempfile.TemporaryDirectory() as folder:
        driver = Driver(args.driver, folder)
        trained = check_training(driver, checks, rng, shared, folder)
        with open(os.path.join(trained, "tokenizer.json"), encoding="utf-8") as file:
            base = file.read()
        strings = [hostile(rng, PLANTED) for _ in range(args.strings)] + long_pieces(rng) + [""]
        corpus = [t for texts in shared.values() for t in texts]
        for name, text in variants(base):
            check_variant(driver, checks, rng, name, text, strings + (corpus if name in ("plain", "flags") else corpus[:300]), folder)
        check_refusals(driver, checks, base, folder)
        check_transformers(checks, trained, strings)
    checks.finish()


if __name__ == "__main__":
    main()
