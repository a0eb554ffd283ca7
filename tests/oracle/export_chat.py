#!/usr/bin/env python3
"""Compares the chats that an export's tokenizer writes in transformers with the chats that
`pack` packed: the same ids.

usage: export_chat.py HF_EXPORT_DRIVER TRIREME_DATA [--chats N]

For each of the eight templates: generated chats (tools, calls, results, thoughts, empty texts)
are packed with `pack --template`, a run that names the template is exported, and
`AutoTokenizer(export).apply_chat_template(messages, tools=...)` gives the ids of `inspect
--line`. With TRIREME_TEST_DATA=DIR also the conversations of DIR/sft.jsonl and sft_tools.jsonl.
Exits with 1 and prints all differences.
"""
import argparse
import json
import os
import random
import subprocess
import sys
import tempfile

from transformers import AutoTokenizer

from chat_oracle import lists_in_texts, some_chat
from chat_templates import TEMPLATES

REAL_CHATS = 400


def call(*command):
    return subprocess.run([str(word) for word in command], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout.decode()


def read_chats(folder):
    chats = []
    for name in ("sft.jsonl", "sft_tools.jsonl"):
        with open(os.path.join(folder, name), encoding="utf-8") as lines:
            chats += [json.loads(line) for line, _ in zip(lines, range(REAL_CHATS))]
    return chats


def make_tokenizer(trireme_data, work):
    corpus, tokenizer = (os.path.join(work, name) for name in ("corpus.jsonl", "tokenizer"))
    call(trireme_data, "synth", "--output", corpus, "--documents", 500)
    call(trireme_data, "tokenizer", "train", "--input", corpus, "--vocab-size", 600, "--output", tokenizer)
    return tokenizer


def compare(driver, trireme_data, work, tokenizer, template, chats):
    packed, source, exported = (os.path.join(work, f"{template}.{name}") for name in ("set", "jsonl", "hf"))
    with open(source, "w", encoding="utf-8") as out:
        out.writelines(json.dumps(chat, ensure_ascii=False) + "\n" for chat in chats)
    call(trireme_data, "pack", "--kind", "sft", "--template", template, "--special-in-content", "allow", "--tokenizer", tokenizer,
         "--input", source, "--seq-len", 100000, "--output", packed, "--progress", "none")
    call(driver, "chat", exported, template, tokenizer)
    theirs = AutoTokenizer.from_pretrained(exported, trust_remote_code=False)
    different = 0
    for line, chat in enumerate(chats):
        messages, tools = lists_in_texts(chat["conversations"])
        ids = theirs.apply_chat_template(messages, tools=tools, tokenize=True, return_dict=False)
        shown = subprocess.run([trireme_data, "inspect", packed, "--json", "--line", str(line)], capture_output=True, check=False)
        ours = json.loads(shown.stdout)["ids"] if shown.returncode == 0 else None
        if ours is None and "gave no document" in shown.stderr.decode():
            continue  # the chat has no trained token, so the data set does not contain it
        if ours != ids:
            different += 1
            if different <= 3:
                print(f"{template}: line {line}: pack {ours}, transformers {ids} {shown.stderr.decode()}\n  {chat}\n  {theirs.decode(ids)!r}")
    print(f"{template}: {len(chats)} chats, {different} different")
    return different


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("driver")
    parser.add_argument("trireme_data")
    parser.add_argument("--chats", type=int, default=40)
    options = parser.parse_args()
    rng = random.Random(3)
    chats = [{"conversations": some_chat(rng, [])["conversations"]} for _ in range(options.chats)]
    if os.environ.get("TRIREME_TEST_DATA"):
        chats += read_chats(os.environ["TRIREME_TEST_DATA"])
    with tempfile.TemporaryDirectory() as work:
        tokenizer = make_tokenizer(options.trireme_data, work)
        different = sum(compare(options.driver, options.trireme_data, work, tokenizer, template, chats) for template in TEMPLATES)
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
