#!/usr/bin/env python3
"""Compares token sets of all record forms with tokens and masks that are computed here.

usage: record_forms.py TRIREME_DATA [--records N] [--seed S]

Random conversations and preference pairs, also with forged markers, are written in every record
form. The expected text is that of ChatML, the ids are those of tokenizers, and the masks follow from
weight, train, --train-on and the form. Exits with 1 and prints the first differences.
"""
import argparse
import json
import random
import subprocess
import sys
import tempfile

from chat_oracle import EXTRA, SECRETS, make_tokenizers, some_text
from tokenizer_oracle import RESERVED, Checks
from tokenizers import Tokenizer

BEGIN, END = SECRETS["<|im_start|>"], SECRETS["<|im_end|>"]
FORGED = RESERVED + EXTRA
SHAREGPT = {"system": "system", "user": "human", "assistant": "gpt"}


def some_turns(rng):
    """Returns [(role, content, mark)]; mark is None, or the field of the message that sets its loss."""
    turns = [("system", some_text(rng, FORGED) or "s", None)] if rng.random() < 0.3 else []
    for _ in range(rng.randrange(1, 4)):
        turns.append(("user", some_text(rng, FORGED), None))
        mark = rng.choice([None, None, ("weight", 0), ("weight", 1), ("train", False), ("train", True)])
        turns.append(("assistant", some_text(rng, FORGED), mark))
    return turns


def message(turn):
    role, content, mark = turn
    return {"role": role, "content": content, **(dict([mark]) if mark else {})}


def shared(turn):
    role, content, mark = turn
    return {"from": SHAREGPT[role], "value": content, **(dict([mark]) if mark else {})}


def without_marks(turns):
    return [(role, content, None) for role, content, _ in turns]


def is_trained(turn):
    return turn[0] == "assistant" and not (turn[2] and not turn[2][1])


def as_messages(rng, turns):
    return {"messages": [message(turn) for turn in turns]}, [is_trained(turn) for turn in turns]


def as_sharegpt(rng, turns):
    if turns[0][0] == "system" and turns[0][1].strip() and rng.random() < 0.5:
        record = {"system": turns[0][1], "conversations": [shared(turn) for turn in turns[1:]]}
    else:
        record = {"conversations": [shared(turn) for turn in turns]}
    return record, [is_trained(turn) for turn in turns]


def as_alpaca(rng, turns):
    turns[:] = [turn for turn in without_marks(turns) if turn[0] != "system" or turn[1].strip()]
    record = {"instruction": turns[-2][1], "output": turns[-1][1]}
    if turns[0][0] == "system":
        record["system"] = turns[0][1]
    asked = [turn[1] for turn in turns if turn[0] != "system"]
    record["history"] = [asked[i:i + 2] for i in range(0, len(asked) - 2, 2)]
    more = rng.choice(["", "with this"])
    record["input"] = more
    turns[-2] = ("user", "\n".join(part for part in (turns[-2][1], more) if part), None)
    return record, [turn[0] == "assistant" for turn in turns]


def as_completion(rng, turns):
    turns[:] = without_marks(turns)
    if len(turns) == 2 and rng.random() < 0.5:
        record = {"prompt": turns[0][1], "completion": turns[1][1]}
    else:
        record = {"prompt": [message(turn) for turn in turns[:-1]],
                  "completion": rng.choice([turns[-1][1], [message(turns[-1])]])}
    return record, [False] * (len(turns) - 1) + [True]


FORMS = {"messages": as_messages, "sharegpt": as_sharegpt, "alpaca": as_alpaca, "prompt-completion": as_completion}


def as_pair(rng, turns):
    """Returns a record, and turns with training flags of both sides."""
    turns[:] = without_marks(turns)
    context, chosen, rejected = turns[:-1], turns[-1], ("assistant", some_text(rng, FORGED) + "x", None)
    texts = [turn for turn in context if turn[0] != "system"]
    kind = rng.randrange(5)
    if kind == 0:
        record = {"chosen": [message(turn) for turn in context + [chosen]], "rejected": [message(turn) for turn in context + [rejected]]}
    elif kind == 1:
        record = {"prompt": [message(turn) for turn in context], "chosen": [message(chosen)], "rejected": [message(rejected)]}
    elif kind == 2:
        record = {"conversations": [shared(turn) for turn in context], "chosen": shared(chosen), "rejected": shared(rejected)}
    elif kind == 3:
        context = texts
        asked = [turn[1] for turn in texts[:-1]]
        record = {"instruction": texts[-1][1], "input": "", "chosen": chosen[1], "rejected": rejected[1],
                  "history": [asked[i:i + 2] for i in range(0, len(asked), 2)]}
    else:
        context = texts[-1:]
        record = {"prompt": context[0][1], "chosen": chosen[1], "rejected": rejected[1]}
    sides = [context + [answer] for answer in (chosen, rejected)]
    return record, [(side, [turn[0] == "assistant" for turn in side]) for side in sides]


def expected(tokenizer, turns, trained, train_on):
    """Returns ids, mask, and the number of answers without loss."""
    answers = [i for i, turn in enumerate(turns) if turn[0] == "assistant"]
    if train_on == "last":
        trained = [flag and i == answers[-1] for i, flag in enumerate(trained)]
    text, ranges = "", []
    for (role, content, _), flag in zip(turns, trained):
        text += f"{BEGIN}{role}\n"
        begin = len(text)
        text += content + END
        if flag:
            ranges.append((begin, len(text)))
        text += "\n"
    encoding = tokenizer.encode(text, add_special_tokens=False)
    mask = [int(any(a >= begin and b <= end for begin, end in ranges)) for a, b in encoding.offsets]
    return encoding.ids, [0] + mask[1:], sum(not trained[i] for i in answers)


class Sets:
    def __init__(self, checks, program, folder, tokenizer):
        self.checks, self.program, self.folder, self.tokenizer = checks, program, folder, tokenizer

    def compare(self, kind, form, records, sides, train_on, options):
        """`sides`: for each record the turns and flags of its conversations."""
        path, out = f"{self.folder}/in.json", tempfile.mkdtemp(dir=self.folder)
        with open(path, "w", encoding="utf-8") as file:
            if options.get("array"):
                json.dump(records, file, ensure_ascii=False, indent=1)
            else:
                file.writelines(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
        packed = subprocess.run(
            [self.program, "pack", "--kind", kind, "--template", "chatml", "--tokenizer", f"{self.folder}/chatml", "--input", path,
             "--seq-len", "65536", "--output", out, "--progress", "none", "--train-on", train_on, "--format", options["format"],
             "--unit-bytes", "20000"], stderr=subprocess.PIPE, text=True)
        if packed.returncode != 0:
            sys.exit(f"pack of {form} failed: {packed.stderr}")
        with open(f"{out}/manifest.json", encoding="utf-8") as file:
            manifest = json.load(file)
        untrained, left = 0, {}
        for i, conversations in enumerate(sides):
            results = [expected(self.tokenizer, turns, trained, train_on) for turns, trained in conversations]
            untrained += sum(result[2] for result in results)
            if all(any(mask) for _, mask, _ in results):
                left[i] = [(ids, mask) for ids, mask, _ in results]
        self.checks.equal("record_format", manifest["record_format"], form, form)
        self.checks.equal("untrained", manifest["counts"]["untrained_messages"], untrained, form)
        self.checks.equal("documents", manifest["counts"]["documents"], len(left), form)
        self.checks.equal("no invalid records", manifest["bad"], [], form)
        for i, wanted in left.items():
            shown = json.loads(subprocess.run([self.program, "inspect", out, "--json", "--line", str(i)], check=True, capture_output=True).stdout)
            shown = [shown] if kind == "sft" else [shown["chosen"], shown["rejected"]]
            self.checks.equal("ids", [side["ids"] for side in shown], [ids for ids, _ in wanted], records[i])
            self.checks.equal("mask", [side["target"] for side in shown], [mask for _, mask in wanted], records[i])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--records", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    rng, checks = random.Random(args.seed), Checks()
    with tempfile.TemporaryDirectory() as folder:
        _, secret = make_tokenizers(folder, [some_text(rng, []) for _ in range(300)])
        sets = Sets(checks, args.program, folder, Tokenizer.from_str(secret))
        for form, write in FORMS.items():
            for train_on in ("all", "last"):
                records, sides = [], []
                for _ in range(args.records):
                    turns = some_turns(rng)
                    record, trained = write(rng, turns)
                    records.append(record)
                    sides.append([(turns, trained)])
                sets.compare("sft", form, records, sides, train_on,
                             {"array": train_on == "last", "format": rng.choice(["auto", form])})
        for train_on in ("all", "last"):
            pairs = [as_pair(rng, some_turns(rng)) for _ in range(args.records)]
            sets.compare("dpo", "preference", [record for record, _ in pairs], [sides for _, sides in pairs], train_on,
                         {"array": train_on == "all", "format": "auto"})
    print(", ".join(f"{count} {kind}" for kind, count in sorted(checks.compared.items())), f"compared, {checks.different} different")
    return 1 if checks.different else 0


if __name__ == "__main__":
    sys.exit(main())
