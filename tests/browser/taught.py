"""A small model that has memorized a few answers, served by the real program."""
import json
import os
import queue
import signal
import subprocess
import threading

TOOL = {"type": "function", "function": {"name": "get_weather", "description": "The weather of a city now", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}
MARKUP = "<script>document.title = 'broken'</script> <img src=x onerror=\"document.title = 'broken'\"> <b>not bold</b>"
MARKDOWN = "## Sky\n\nIt is **blue**:\n\n- one\n- two\n\n```python\nprint(1)\n```"
COUNT = "Here they are: " + " ".join(str(number) for number in range(1, 120)) + "."
# (message of the user, thoughts of the assistant, answer)
TALKS = [("markup", "", MARKUP), ("markdown", "", MARKDOWN), ("count", "", COUNT), ("你好", "", "你好，我在。"), ("short", "", "Yes."),
         ("two lines\nof text", "", "Two lines."), ("think", "One and one.", "Two.")]
SHAPE = {"model.preset": "tiny", "model.hidden_size": 128, "model.num_layers": 2, "model.num_heads": 4, "model.num_kv_heads": 2, "model.head_dim": 32,
         "model.intermediate_size": 256, "model.max_seq_len": 2048}
START_S = 120


def records():
    for user, thought, answer in TALKS:
        message = {"role": "assistant", "content": answer}
        if thought:
            message["reasoning_content"] = thought
        yield {"conversations": [{"role": "user", "content": user}, message]}
    call = {"role": "assistant", "content": "", "tool_calls": [{"name": "get_weather", "arguments": {"city": "Hangzhou"}}]}
    asked = [{"role": "system", "content": "", "tools": [TOOL]}, {"role": "user", "content": "weather"}, call]
    yield {"conversations": asked}
    yield {"conversations": asked + [{"role": "tool", "content": "sunny"}, {"role": "assistant", "content": "It is sunny."}]}


def call(*command):
    result = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if result.returncode != 0:
        raise SystemExit(f"{' '.join(str(word) for word in command)}\n{result.stdout}\nexit {result.returncode}")


def teach(trireme, trireme_data, work):
    """Returns the run of a model that answers TALKS word for word at temperature 0."""
    path = lambda name: os.path.join(work, name)
    with open(path("chats.jsonl"), "w", encoding="utf-8") as file:
        file.writelines(json.dumps(record, ensure_ascii=False) + "\n" for record in records() for _ in range(8))
    with open(path("texts.jsonl"), "w", encoding="utf-8") as file:
        file.writelines(json.dumps({"text": json.dumps(record, ensure_ascii=False)}) + "\n" for record in records())
    call(trireme_data, "tokenizer", "train", "--input", path("texts.jsonl"), "--vocab-size", 400, "--output", path("tokenizer"))
    for kind, source, more in (("pretrain", "texts", []), ("sft", "chats", ["--template", "minimind-v3"])):
        call(trireme_data, "pack", "--kind", kind, "--tokenizer", path("tokenizer"), "--input", path(f"{source}.jsonl"), "--seq-len", 512,
             "--output", path(kind), *more)
    train = ["--train.micro_batch", 2, "--train.global_batch", 4, "--train.device", "cpu", "--optim.schedule", "constant"]
    shape = [word for key, value in SHAPE.items() for word in (f"--{key}", value)]
    call(trireme, "pretrain", "--data", path("pretrain"), "--run", path("start"), "--train.steps", 1, *train, *shape)
    call(trireme, "sft", "--init", path("start"), "--data", path("sft"), "--run", path("taught"), "--train.steps", 250, "--optim.lr", 3e-3, *train)
    return path("taught")


class Serving:
    """Runs `trireme serve` on its own port until close()."""

    def __init__(self, trireme, run, *more):
        self.process = subprocess.Popen([trireme, "serve", "--checkpoint", run, "--host", "127.0.0.1", "--port", "0", *more],
                                        stdout=subprocess.PIPE, text=True)
        lines = queue.Queue()
        threading.Thread(target=lambda: lines.put(self.process.stdout.readline()), daemon=True).start()
        line = lines.get(timeout=START_S)
        self.url = next((word.rstrip("/") + "/" for word in line.split() if word.startswith("http://")), None)
        assert self.url, f"no address in the first line: {line!r}"

    def stop(self):
        self.process.send_signal(signal.SIGTERM)

    def close(self):
        self.process.terminate()
        self.process.wait(timeout=60)
        self.process.stdout.close()
