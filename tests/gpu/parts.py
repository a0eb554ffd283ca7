"""The table of parts, most informative first, and how one of them runs in its own process."""
import dataclasses
import sys
import traceback
import typing

import driver
import part_fast
import part_machine
import part_serving
import part_speed
import part_training
import places
from part import Context, Failed, Skipped


@dataclasses.dataclass
class Row:
    """gpu_only: the part says nothing on a CPU. needs_device: it needs the chosen device, which can be the CPU in a rehearsal."""
    name: str
    about: str
    run: typing.Callable
    limit_s: float
    least_s: float = 5
    gpu_only: bool = False
    needs_device: bool = True


TABLE = [
    Row("libraries", "programs start with the libraries of this machine", part_machine.libraries, 90, needs_device=False),
    Row("device", "the GPU, its driver and its ceilings", part_machine.device, 90, gpu_only=True),
    Row("nccl", "NCCL with one rank", part_machine.nccl, 60, gpu_only=True),
    Row("gpu_tests", "the tests of label gpu", part_machine.gpu_tests, 180, gpu_only=True),
    Row("kernels", "every kernel compiles, and equals its plain path on the device", part_fast.kernels, 90),
    Row("losses", "30 steps on CPU and device have the same losses", part_training.train_losses, 150),
    Row("resume", "a killed run resumes bit for bit", part_training.resume, 90),
    Row("deterministic", "two equal runs have equal bits", part_training.deterministic, 90),
    Row("sync", "training steps do not wait for the device", part_fast.sync, 60, gpu_only=True),
    Row("generate", "the same greedy text on CPU and device, and its speed", part_training.generate, 120),
    Row("sft", "fine-tuning on chats", part_training.sft, 90),
    Row("dpo", "training on preference pairs", part_training.dpo, 90),
    Row("speed_minimind", "step time, MFU and memory of minimind-1024x16 beside PyTorch", part_speed.minimind, 300, least_s=20),
    Row("speed_gpt2", "step time, MFU and memory of a model of GPT-2's size beside PyTorch", part_speed.gpt2, 300, least_s=20),
    Row("graphs", "losses and step time of micro-batches with CUDA graphs and without", part_speed.graphs, 120, least_s=20),
    Row("fp8", "losses, step time and memory of fp8 beside bf16", part_fast.fp8, 150, least_s=20),
    Row("ladder", "step time with each fast path off in turn", part_fast.ladder, 90),
    Row("decode", "prefill and decoding of several batch sizes, with CUDA graphs and without", part_serving.decode, 120),
    Row("serve", "throughput and latency of the server with 1, 8 and 32 clients", part_serving.serve, 90),
]


def run_one(args):
    """Runs one part in this process. Its exit code tells the driver how it ended."""
    row = next(row for row in TABLE if row.name == args.name)
    context = Context(args.name, args.device, args.size, args.work, args.result)
    context.write()
    code = 1
    try:
        row.run(context)
        code = 0
    except Skipped as skipped:
        context.reason, code = str(skipped), driver.EXIT_SKIPPED
    except (Failed, places.Missing) as failed:
        context.reason = str(failed)
    except Exception:  # the driver must learn the reason, whatever it is
        traceback.print_exc()
        context.reason = traceback.format_exc()[-driver.TAIL_BYTES:]
    context.write()
    print(context.reason, file=sys.stderr)
    return code
