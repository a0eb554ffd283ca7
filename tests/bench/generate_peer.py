#!/usr/bin/env python3
"""Measures CTranslate2 or transformers on a Hugging Face directory, or llama.cpp on a GGUF file, for compare_generate.py. Works like
`trireme bench generate`: random prompts, always the most likely token, no end token. The result is the fastest repeat after one that is
not counted.

usage: generate_peer.py --engine ctranslate2|transformers|llama.cpp --model DIR|FILE --out FILE [--batch B] [--prompt-tokens P]
                        [--new-tokens N] [--threads T] [--precision fp32|bf16] [--repeats R]

llama.cpp computes in the types of the file. It needs the package llama-cpp-python, compiled on this machine.

Writes {"prefill_tokens_per_s", "decode_tokens_per_s"}: first the prompt tokens until all texts
have a token, then the tokens of all texts after it.
"""
import argparse
import json
import os
import random
import tempfile
import time


def ctranslate2_engine(args):
    import ctranslate2
    import transformers
    from ctranslate2.converters import TransformersConverter
    folder = os.path.join(tempfile.mkdtemp(), "model")
    TransformersConverter(args.model).convert(folder, quantization="float32")
    generator = ctranslate2.Generator(folder, device="cpu", compute_type="float32", inter_threads=1, intra_threads=args.threads)
    tokenizer = transformers.AutoTokenizer.from_pretrained(args.model)

    def generate(prompts, new_tokens):
        results = generator.generate_batch([tokenizer.convert_ids_to_tokens(prompt) for prompt in prompts], max_length=new_tokens,
                                           min_length=new_tokens, sampling_topk=1, include_prompt_in_result=False, max_batch_size=0)
        assert all(len(result.sequences_ids[0]) == new_tokens for result in results)
    return generate, len(tokenizer)


def transformers_engine(args):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    torch.set_num_threads(args.threads)
    dtype = torch.bfloat16 if args.precision == "bf16" else torch.float32
    net = AutoModelForCausalLM.from_pretrained(args.model, dtype=dtype).eval()

    def generate(prompts, new_tokens):
        ids = torch.tensor(prompts)
        with torch.inference_mode():
            out = net.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=new_tokens, min_new_tokens=new_tokens, do_sample=False,
                               pad_token_id=0)
        assert out.shape[1] == ids.shape[1] + new_tokens
    return generate, len(AutoTokenizer.from_pretrained(args.model))


def llama_engine(args):
    import llama_cpp as llama
    import numpy
    llama.llama_backend_init()
    model = llama.llama_model_load_from_file(os.fsencode(args.model), llama.llama_model_default_params())
    vocab = llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(model))
    tokens = args.batch * args.prompt_tokens
    settings = llama.llama_context_default_params()
    settings.n_ctx = tokens + args.batch * args.new_tokens
    settings.n_batch, settings.n_ubatch = max(tokens, args.batch), 512
    settings.n_seq_max = args.batch
    settings.kv_unified = True
    settings.n_threads = settings.n_threads_batch = args.threads
    context = llama.llama_init_from_model(model, settings)
    batch = llama.llama_batch_init(tokens, 0, 1)

    def run(rows):
        """Computes (sequence, position, token, wants logits) for all rows, and returns the most likely token of each row that wants logits."""
        batch.n_tokens = len(rows)
        for i, (sequence, position, token, wanted) in enumerate(rows):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, position, 1, wanted
            batch.seq_id[i][0] = sequence
        if llama.llama_decode(context, batch) != 0:
            raise SystemExit("llama_decode failed")
        return [int(numpy.ctypeslib.as_array(llama.llama_get_logits_ith(context, i), shape=(vocab,)).argmax())
                for i, row in enumerate(rows) if row[3]]

    def generate(prompts, new_tokens):
        llama.llama_memory_clear(llama.llama_get_memory(context), True)
        last = run([(s, i, token, i + 1 == len(prompt)) for s, prompt in enumerate(prompts) for i, token in enumerate(prompt)])
        for step in range(1, new_tokens):
            last = run([(s, args.prompt_tokens + step - 1, token, True) for s, token in enumerate(last)])
    return generate, vocab


ENGINES = {"ctranslate2": ctranslate2_engine, "transformers": transformers_engine, "llama.cpp": llama_engine}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--engine", choices=tuple(ENGINES), required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--out", required=True)
    for name, value in (("batch", 1), ("prompt-tokens", 128), ("new-tokens", 128), ("threads", 2), ("repeats", 3)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    args = parser.parse_args()
    generate, vocab = ENGINES[args.engine](args)
    draws = random.Random(1)

    def seconds(new_tokens):
        prompts = [[draws.randrange(vocab) for _ in range(args.prompt_tokens)] for _ in range(args.batch)]
        begin = time.perf_counter()
        generate(prompts, new_tokens)
        return time.perf_counter() - begin
    first, decode = [], []
    for i in range(args.repeats + 1):
        one = seconds(1)
        rest = seconds(args.new_tokens) - one
        if i > 0:
            first.append(one)
            decode.append(rest)
    with open(args.out, "w", encoding="utf-8") as file:
        json.dump({"prefill_tokens_per_s": args.batch * args.prompt_tokens / min(first),
                   "decode_tokens_per_s": args.batch * (args.new_tokens - 1) / min(decode)}, file)


if __name__ == "__main__":
    main()
