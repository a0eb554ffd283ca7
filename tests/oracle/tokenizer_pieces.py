#!/usr/bin/env python3
"""Compares encode and decode of SentencePiece tokenizers, and of directories with vocab.json and
merges.txt, with Hugging Face `tokenizers`.

usage: tokenizer_pieces.py DRIVER [--strings N] [--seed S] [--only FAMILY]

The files are made here: a small model is trained with the normalizer and the pre-tokenizer of the
family, then gets its flags, decoder and added tokens. Exits with 1 and prints the first
differences.
"""
import argparse
import collections
import json
import os
import random
import tempfile

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from tokenizer_oracle import Checks, Driver, hostile, long_pieces

BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
SPACE = "\u2581"
SPECIAL = ["<unk>", "<s>", "</s>"]
PLANTED = ["<unk>", "<s>", "</s>", "<0x0A>", "[INST]", " [INST]", "<|user|>", "<|user|>  \n", "ret urn", SPACE, SPACE * 2, " " + SPACE, "a" + SPACE + "b"]

PREPEND = normalizers.Sequence([normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)])
TO_SPACE = decoders.Replace(SPACE, " ")
LLAMA_DECODER = decoders.Sequence([TO_SPACE, decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
GEMMA_DECODER = decoders.Sequence([TO_SPACE, decoders.ByteFallback(), decoders.Fuse()])
ADDED = [AddedToken("[INST]", normalized=False, special=True), AddedToken("<|user|>", rstrip=True, normalized=False, special=True),
         AddedToken("ret urn", normalized=True), AddedToken("<|word|>", single_word=True, normalized=False),
         AddedToken("<|left|>", lstrip=True, normalized=False), AddedToken("  ", normalized=False)]


def metaspace(scheme, split):
    return pre_tokenizers.Metaspace(SPACE, scheme, split), decoders.Metaspace(SPACE, scheme, split)


def begin(*names):
    return processors.TemplateProcessing(single=" ".join([names[0], "$A", *names[1:]]), special_tokens=[(n, SPECIAL.index(n)) for n in names])


def bpe(texts, normalizer, pre_tokenizer, decoder, post=None, byte_fallback=True, unk="<unk>", size=900, bytes_known=BYTES, **flags):
    tokenizer = Tokenizer(models.BPE(unk_token=unk, byte_fallback=byte_fallback, **flags))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    if pre_tokenizer is not None:
        tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoder
    special = [*SPECIAL, *(bytes_known if byte_fallback else [])]
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=size, special_tokens=special, limit_alphabet=120, show_progress=False))
    return finish(tokenizer, post, byte_fallback)


def unigram(texts, normalizer, pre_tokenizer, decoder, post=None, byte_fallback=False):
    tokenizer = Tokenizer(models.Unigram())
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoder
    special = [*SPECIAL, *(BYTES if byte_fallback else [])]
    counts = collections.Counter("".join(texts))
    known = {char for char, _ in counts.most_common(150)}
    short = ["".join(char for char in text if char in known)[:200] for text in texts]
    tokenizer.train_from_iterator(short, trainers.UnigramTrainer(vocab_size=700, unk_token="<unk>", special_tokens=special, show_progress=False,
                                                                max_piece_length=12))
    state = json.loads(tokenizer.to_str())
    state["model"]["byte_fallback"] = byte_fallback
    return finish(Tokenizer.from_str(json.dumps(state)), post, byte_fallback)


def finish(tokenizer, post, byte_fallback):
    """Makes byte tokens ordinary tokens, as in published files, and adds the added tokens."""
    state = json.loads(tokenizer.to_str())
    state["added_tokens"] = [token for token in state["added_tokens"] if not token["content"].startswith("<0x")]
    tokenizer = Tokenizer.from_str(json.dumps(state))
    tokenizer.add_tokens(ADDED)
    if post is not None:
        tokenizer.post_processor = post
    return tokenizer.to_str()


def families(texts):
    first, _ = metaspace("first", False)
    always, always_decoder = metaspace("always", True)
    never, never_decoder = metaspace("never", True)
    gemma_split = pre_tokenizers.Split(" ", "merged_with_previous")
    yield "llama2", lambda: bpe(texts, PREPEND, None, LLAMA_DECODER, begin("<s>"), fuse_unk=True)
    yield "llama2-metaspace", lambda: bpe(texts, None, first, LLAMA_DECODER, begin("<s>"), fuse_unk=True)
    yield "mistral", lambda: bpe(texts, PREPEND, None, LLAMA_DECODER, begin("<s>"), ignore_merges=True, fuse_unk=True)
    yield "mistral-v3", lambda: bpe(texts, None, first, LLAMA_DECODER, begin("<s>", "</s>"))
    yield "gemma", lambda: bpe(texts, normalizers.Replace(" ", SPACE), gemma_split, GEMMA_DECODER, begin("<s>"), fuse_unk=True)
    yield "gemma3", lambda: bpe(texts, normalizers.Replace(" ", SPACE), gemma_split, GEMMA_DECODER, begin("<s>"), fuse_unk=True, ignore_merges=True, size=1500)
    yield "no-fallback", lambda: bpe(texts, PREPEND, None, LLAMA_DECODER, byte_fallback=False, fuse_unk=True)
    yield "no-fallback-unfused", lambda: bpe(texts, None, always, always_decoder, byte_fallback=False)
    yield "no-unk", lambda: bpe(texts, None, never, never_decoder, byte_fallback=False, unk=None)
    yield "some-bytes", lambda: bpe(texts, PREPEND, None, LLAMA_DECODER, fuse_unk=True, bytes_known=BYTES[:0xE3])
    yield "some-bytes-unfused", lambda: bpe(texts, PREPEND, None, LLAMA_DECODER, bytes_known=BYTES[0x90:])
    yield "t5", lambda: unigram(texts, None, pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), always]), always_decoder,
                                processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 2)]))
    yield "t5-new", lambda: unigram(texts, normalizers.Sequence([normalizers.Strip(left=False, right=True), normalizers.Replace(Regex(" {2,}"), SPACE)]),
                                    always, always_decoder)
    yield "albert", lambda: unigram(texts, normalizers.Sequence([normalizers.Replace("``", '"'), normalizers.Replace("''", '"'),
                                                                     normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()]),
                                    pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), always]), always_decoder)
    yield "unigram-bytes", lambda: unigram(texts, normalizers.NFC(), never, GEMMA_DECODER, byte_fallback=True)
    yield "lower-nfd", lambda: bpe(texts, normalizers.Sequence([normalizers.Lowercase(), normalizers.NFD()]), always, always_decoder)
    yield "accents", lambda: bpe(texts, normalizers.Sequence([normalizers.StripAccents(), normalizers.NFKD()]), always, always_decoder)
    yield "unigram-nfkc", lambda: unigram(texts, normalizers.Sequence([normalizers.NFKC(), normalizers.Strip()]), always, always_decoder)
    for behavior in ("isolated", "removed", "merged_with_next"):
        yield behavior, lambda behavior=behavior: bpe(texts, None, pre_tokenizers.Sequence([pre_tokenizers.Split("ab", behavior), always]), always_decoder)


def compare(driver, checks, rng, name, path, strings):
    theirs = Tokenizer.from_file(path + "/tokenizer.json")
    plain = Tokenizer.from_str(without_added(theirs.to_str()))
    compare_with(driver, checks, rng, name, path, strings, theirs, plain)


def compare_families(driver, checks, rng, families, only, folder, strings):
    """Makes and compares each family, or the one named `only`."""
    for name, make in families:
        if only in (None, name):
            path = os.path.join(folder, name)
            os.makedirs(path)
            with open(path + "/tokenizer.json", "w", encoding="utf-8") as file:
                file.write(make())
            compare(driver, checks, rng, name, path, strings)


def without_added(state):
    """Returns the tokenizer without its added tokens that the model does not have, for encode
    without added tokens."""
    state = json.loads(state)
    state["added_tokens"], state["post_processor"] = [], None
    return json.dumps(state)


def compare_with(driver, checks, rng, name, path, strings, theirs, plain):
    ours = driver.map("encode", path, [{"text": text} for text in strings])
    rows = []
    for text, row in zip(strings, ours):
        ids = theirs.encode(text).ids
        checks.equal(name + ": ids", row["ids"], ids, text)
        checks.equal(name + ": ids without added tokens", row["raw"], plain.encode(text).ids, text)
        rows.append(ids)
    size = theirs.get_vocab_size()
    byte_ids = [id for id in (theirs.token_to_id(byte) for byte in BYTES) if id is not None]
    for _ in range(len(strings)):
        rows.append([rng.choice(byte_ids) if byte_ids and rng.random() < 0.4 else rng.randrange(size + 3) for _ in range(rng.randrange(12))])
    for ids, row in zip(rows, driver.map("decode", path, [{"ids": ids} for ids in rows])):
        checks.equal(name + ": text", row["all"], theirs.decode(ids, skip_special_tokens=False), ids)
        checks.equal(name + ": text without special tokens", row["skip"], theirs.decode(ids, skip_special_tokens=True), ids)
        checks.equal(name + ": streamed text", row["stream"], theirs.decode(ids, skip_special_tokens=False), ids)


def vocab_directory(folder, texts, qwen):
    """Writes vocab.json and merges.txt, and returns the tokenizer that transformers makes of them."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=1200, special_tokens=["<|endoftext|>"], show_progress=False,
                                                             initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    os.makedirs(folder)
    tokenizer.model.save(folder)
    config = {"tokenizer_class": "Qwen2Tokenizer" if qwen else "GPT2Tokenizer", "bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>",
              "unk_token": "<|endoftext|>"}
    if qwen:
        config["added_tokens_decoder"] = {"0": {"content": "<|endoftext|>", "special": True, "normalized": False},
                                          "1200": {"content": "<|im_start|>", "special": True, "normalized": False, "lstrip": True}}
    with open(folder + "/tokenizer_config.json", "w", encoding="utf-8") as file:
        json.dump(config, file)
    from transformers import GPT2Tokenizer, Qwen2Tokenizer
    return (Qwen2Tokenizer if qwen else GPT2Tokenizer).from_pretrained(folder).backend_tokenizer


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("driver")
    parser.add_argument("--strings", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", help="one family")
    args = parser.parse_args()
    rng = random.Random(args.seed)
    checks = Checks()
    texts = [hostile(rng, []) + " the return of her thing and another" for _ in range(1000)]
    strings = [hostile(rng, PLANTED) for _ in range(args.strings)] + long_pieces(rng)
    strings += ["", " ", "  ", "\n", " a", "a ", "  a  b  ", "\t\x00\x7f", "hello  world ", "👍🏽👨‍👩‍👧 x", "``a'' b", "a\u00a0b", *PLANTED]
    with tempfile.TemporaryDirectory() as folder:
        driver = Driver(args.driver, folder)
        compare_families(driver, checks, rng, families(texts), args.only, folder, strings)
        for name in ("gpt2-files", "qwen2-files"):
            if args.only in (None, name):
                path = os.path.join(folder, name)
                theirs = vocab_directory(path, texts, name == "qwen2-files")
                compare_with(driver, checks, rng, name, path, strings, theirs, Tokenizer.from_str(without_added(theirs.to_str())))
    checks.finish()


if __name__ == "__main__":
    main()
