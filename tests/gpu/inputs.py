"""The corpora of the check: made on the machine from the built-in corpus, once for all parts of a run."""
import contextlib
import fcntl
import json
import os
import random

VOCABULARY = 600
SEQ_LEN = 128


@contextlib.contextmanager
def made_once(folder):
    """Yields a temporary directory that becomes `folder`, or None if `folder` is there."""
    os.makedirs(os.path.dirname(folder), exist_ok=True)
    with open(folder + ".lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.path.isdir(folder):
            yield None
            return
        new = folder + f".new{os.getpid()}"
        os.makedirs(new)
        yield new
        os.rename(new, folder)


def write_lines(path, rows):
    with open(path, "w", encoding="utf-8") as out:
        out.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def texts(path):
    with open(path, encoding="utf-8") as lines:
        return [json.loads(line)["text"] for line in lines]


def chats(rng, documents):
    """Yields conversations in which the answer repeats a part of the question, which a model
    learns in few steps."""
    for text in documents:
        words = text.split()[:12] or ["nothing"]
        yield {"conversations": [{"role": "user", "content": "Repeat: " + " ".join(words)},
                                 {"role": "assistant", "content": " ".join(words[:rng.randint(1, len(words))])}]}


def pairs(rng, documents):
    """Yields preference pairs: the chosen answer repeats the question, the rejected one reverses
    it."""
    for text in documents:
        words = text.split()[:rng.randint(4, 12)] or ["nothing"]
        question = {"role": "user", "content": "Repeat: " + " ".join(words)}
        yield {"chosen": [question, {"role": "assistant", "content": " ".join(words)}],
               "rejected": [question, {"role": "assistant", "content": " ".join(reversed(words))}]}


def corpus(part):
    """Returns the directory with corpus.jsonl and tokenizer."""
    folder = os.path.join(part.work, "inputs", "corpus")
    with made_once(folder) as new:
        if new:
            part.trireme_data("synth", "--output", f"{new}/corpus.jsonl", "--documents", 2000 if part.small else 20000)
            part.trireme_data("tokenizer", "train", "--input", f"{new}/corpus.jsonl", "--vocab-size", VOCABULARY, "--output", f"{new}/tokenizer")
    return folder


def pack(part, name, kind, input_file, seq_len):
    source = corpus(part)
    folder = os.path.join(part.work, "inputs", name)
    with made_once(folder) as new:
        if new:
            template = [] if kind == "pretrain" else ["--template", "minimind-v3"]
            part.trireme_data("pack", "--kind", kind, *template, "--tokenizer", f"{source}/tokenizer", "--input", input_file(source, new),
                              "--seq-len", seq_len, "--output", f"{new}/set")
    return os.path.join(folder, "set")


def pretrain_set(part):
    """Packs rows of several short documents."""
    return pack(part, "pretrain", "pretrain", lambda source, _: f"{source}/corpus.jsonl", SEQ_LEN)


def one_document_set(part, seq_len):
    """Packs the whole corpus as one document, so that each row is one document and the PyTorch
    peer needs no mask."""
    def joined(source, new):
        write_lines(f"{new}/one.jsonl", [{"text": "\n".join(texts(f"{source}/corpus.jsonl"))}])
        return f"{new}/one.jsonl"
    return pack(part, f"one_document_{seq_len}", "pretrain", joined, seq_len)


def chat_set(part, kind):
    """kind: sft or dpo."""
    def written(source, new):
        documents, rng = texts(f"{source}/corpus.jsonl")[:2000], random.Random(1)
        write_lines(f"{new}/{kind}.jsonl", (chats if kind == "sft" else pairs)(rng, documents))
        return f"{new}/{kind}.jsonl"
    return pack(part, kind, kind, written, SEQ_LEN)
