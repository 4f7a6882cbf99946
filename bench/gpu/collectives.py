"""Are collectives of real NCCL seen as they are? Several ranks of PyTorch share the one GPU; compared is what
`nccl_events` says of them with what they write down (`plain`), or with what PyTorch's flight recorder kept of a training
(`ddp`, `fsdp`).

    python3 bench/gpu/collectives.py [--gpuwhy .gpu/gpuwhy] [--out $OUT] [--jobs plain,ddp,fsdp] [--ranks 2,4]
                                     [--rounds 20] [--keep]

NCCL takes several ranks on one GPU when it takes them for different hosts: each has an NCCL_HOSTID of its own. Compared
are operations, bytes and reductions, rank, size of the communicator, and that all ranks number the same operation alike.
In the end of `plain` the ranks capture operations in a CUDA graph and launch it again and again: `nccl_replays` is
compared too. The flight recorder does not know what is reduced how.
Prints the table last and writes collectives.json. Needs root.
"""

import argparse
import itertools
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

from kept_traces import KeptTraces

# Making communicators of four ranks on one GPU takes a while.
PATIENCE_S = 180
TRUTH = "TRUTH "


def main() -> int:
    if sys.argv[1:2] == ["--job"]:
        return job(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    import machine
    import measured_code

    options = parse_arguments()
    report = {"machine": machine.describe(), **measured_code.describe(), "rounds": options.rounds, "runs": []}
    options.out.mkdir(parents=True, exist_ok=True)
    kept = KeptTraces(options.out if options.keep else None)
    for kind, ranks in itertools.product(options.jobs, options.ranks):
        report["runs"].append({"job": kind, "ranks": ranks, **one_run(options, kind, ranks, kept)})
        (options.out / "collectives.json").write_text(json.dumps(report, indent=1) + "\n")
    for run in report["runs"]:
        print(json.dumps(run))
    return 0 if all(run["agree"] for run in report["runs"]) else 1


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpuwhy", type=Path, default=Path(".gpu/gpuwhy"))
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", ".")))
    parser.add_argument("--ranks", type=lambda text: [int(one) for one in text.split(",")], default=[2, 4])
    parser.add_argument("--jobs", type=lambda text: text.split(","), default=list(RANKS))
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--keep", action="store_true", help="bring the traces home")
    options = parser.parse_args()
    options.gpuwhy = options.gpuwhy.resolve()
    return options


def one_run(options: argparse.Namespace, kind: str, ranks: int, kept: KeptTraces) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "x.db"
        command = [sys.executable, __file__, "--job", kind, str(ranks), str(options.rounds)]
        traced = [str(options.gpuwhy), "trace", "--out", str(trace), "--", *command]
        done = subprocess.run(traced, capture_output=True, text=True, timeout=PATIENCE_S)
        said = [json.loads(line.removeprefix(TRUTH)) for line in done.stdout.splitlines() if line.startswith(TRUTH)]
        if done.returncode or not said:
            return {"agree": False, "error": (done.stderr or done.stdout)[-1500:]}
        kept.keep(trace, f"collectives-{kind}-{ranks}")
        return compared(said, trace)


def compared(said: list[dict], trace: Path) -> dict:
    with closing(sqlite3.connect(f"file:{trace}?mode=ro", uri=True)) as connection:
        connection.row_factory = sqlite3.Row
        rows = [dict(row) for row in connection.execute("SELECT * FROM nccl_events ORDER BY timestamp_ns")]
        replays = [dict(row) for row in connection.execute("SELECT * FROM nccl_replays ORDER BY timestamp_ns")]
    launches = [one for one in said if "launches" in one]
    said = [one for one in said if "launches" not in one]
    operations = [row for row in rows if not row["op"].startswith("COMM_")]
    wanted = Counter(key(one["pid"], one) for one in said)
    knows_reductions = any("reduce_op" in one for one in said)
    seen = Counter(key(row["pid"], row if knows_reductions else {**row, "reduce_op": None}) for row in operations)
    missing, extra = wanted - seen, seen - wanted
    orders = numbered_alike(operations)
    unknown = sum(row["comm_id_hash"] is None or row["rank"] is None for row in operations)
    return {
        "agree": not missing and not extra and not unknown and not orders and all(map(is_seen_in_graphs(replays), launches)),
        "operations": sum(wanted.values()), "seen": sum(seen.values()), "unknown": unknown,
        "missing": [[*one, count] for one, count in missing.most_common(5)],
        "extra": [[*one, count] for one, count in extra.most_common(5)],
        "numbered_differently": orders[:5],
        "with_wait": sum(row["wait_ns"] is not None for row in operations),
        "communicators": len({row["comm_id_hash"] for row in operations}),
        "launches_of_graphs": sum(one["launches"] for one in launches), "replays": len(replays),
        "replays_with_wait": sum(row["wait_ns"] is not None for row in replays),
        "made": Counter(row["op"] for row in rows if row["op"].startswith("COMM_")),
    }


def is_seen_in_graphs(replays: list[dict]):
    """Each launch of a rank is there, with the operations that were captured, in order."""

    def is_seen(one: dict) -> bool:
        own = [row for row in replays if row["pid"] == one["pid"] and row["rank"] == one["rank"]]
        has_all = all(row["operations"] == one["captured"] for row in own)
        return has_all and [row["replay"] for row in own] == list(range(one["launches"]))

    return is_seen


def key(pid: int, one: dict) -> tuple:
    return (pid, one["op"], one["bytes"], one["datatype"], one.get("reduce_op"), one["rank"], one["nranks"])


def numbered_alike(operations: list[dict]) -> list[str]:
    """Operations that ranks of a communicator do not have in common."""
    by_number = defaultdict(dict)
    for row in operations:
        if row["seq"] is not None:
            by_number[row["comm_id_hash"], row["seq"]][row["rank"]] = (row["op"], row["bytes"], row["nranks"])
    wrong = []
    for (comm, number), ranks in by_number.items():
        kinds = set(ranks.values())
        if len(kinds) != 1 or len(ranks) != next(iter(kinds))[2]:
            wrong.append(f"{comm}/{number}: {ranks}")
    return wrong


def job(kind: str, ranks: int, rounds: int) -> int:
    """What ranks say comes to a pipe each: lines of several would be mixed."""
    command = [sys.executable, "-c", START + RANKS[kind]]
    # Where the model of a training is.
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parent)}
    children = [
        subprocess.Popen(
            [*command, str(rank), str(ranks), str(rounds), kind], stdout=subprocess.PIPE, text=True, env=environment
        )
        for rank in range(ranks)
    ]
    with ThreadPoolExecutor(ranks) as pool:
        for said in pool.map(lambda child: child.communicate()[0], children):
            print(said, end="", flush=True)
    return max(child.returncode for child in children)


START = r'''
import faulthandler, json, os, sys
faulthandler.dump_traceback_later(90, exit=True)
rank, ranks, rounds, kind = *map(int, sys.argv[1:4]), sys.argv[4]
os.environ.update(NCCL_HOSTID=f"host{rank}", NCCL_SOCKET_IFNAME="lo", NCCL_IB_DISABLE="1", MASTER_ADDR="127.0.0.1",
                  MASTER_PORT="29517", RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_RANK="0",
                  TORCH_FR_BUFFER_SIZE="100000", TORCH_NCCL_TRACE_BUFFER_SIZE="100000")
import torch
import torch.distributed as dist

torch.cuda.set_device(0)
dist.init_process_group("nccl")
'''

PLAIN = r'''
half = dist.new_group(list(range(0, ranks, 2)))
told = []

def tell(op, tensor, reduce_op=None, group_rank=rank, group_size=ranks):
    kind = {torch.float32: "float32", torch.bfloat16: "bfloat16"}[tensor.dtype]
    told.append({"pid": os.getpid(), "op": op, "bytes": tensor.numel() * tensor.element_size(), "datatype": kind,
                 "reduce_op": reduce_op, "rank": group_rank, "nranks": group_size})

for number in range(rounds):
    one = torch.ones(1000 + number, device="cuda", dtype=[torch.float32, torch.bfloat16][number % 2])
    all_ = torch.empty(one.numel() * ranks, device="cuda", dtype=one.dtype)
    dist.all_reduce(one); tell("ALL_REDUCE", one, "sum")
    dist.all_reduce(one, op=dist.ReduceOp.MAX); tell("ALL_REDUCE", one, "max")
    dist.all_gather_into_tensor(all_, one); tell("ALL_GATHER", one)
    dist.reduce_scatter_tensor(one, all_); tell("REDUCE_SCATTER", one, "sum")
    dist.broadcast(one, src=number % ranks); tell("BROADCAST", one)
    if rank % 2 == 0:
        dist.all_reduce(one, group=half); tell("ALL_REDUCE", one, "sum", rank // 2, (ranks + 1) // 2)
    torch.cuda.synchronize()
torch.cuda.synchronize()
graph, summed = torch.cuda.CUDAGraph(), torch.ones(4096, device="cuda")
# The watchdog of the process group calls CUDA meanwhile.
with torch.cuda.graph(graph, capture_error_mode="thread_local"):
    for _ in range(2):
        dist.all_reduce(summed); tell("ALL_REDUCE", summed, "sum")
for _ in range(rounds):
    graph.replay()
    torch.cuda.synchronize()
told.append({"pid": os.getpid(), "rank": rank, "launches": rounds, "captured": 2})
for one in told:
    print("TRUTH " + json.dumps(one), flush=True)
# A communicator is not destroyed while a graph holds operations of it.
graph.reset()
dist.destroy_process_group()
'''


TRAINING = r'''
import math, pickle
import training

model = training.MODELS[kind]()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
batch = torch.zeros(64, training.WIDTH, device="cuda")
for _ in range(rounds):
    optimizer.zero_grad(set_to_none=True)
    loss = model(batch).pow(2).mean()
    loss.backward()
    optimizer.step()
    loss.item()
torch.cuda.synchronize()
recorded = pickle.loads(torch._C._distributed_c10d._dump_nccl_trace(includeStackTraces=False))
# What NCCL counts: what each rank gives, and what it gets of a reduction that is scattered.
OPS = {"all_reduce": ("ALL_REDUCE", "input"), "all_reduce_barrier": ("ALL_REDUCE", "input"), "broadcast": ("BROADCAST", "input"),
       "all_gather": ("ALL_GATHER", "input"), "_all_gather_base": ("ALL_GATHER", "input"),
       "_reduce_scatter_base": ("REDUCE_SCATTER", "output")}
KINDS = {"Float": ("float32", 4), "Long": ("int64", 8), "Int": ("int32", 4), "Byte": ("uint8", 1), "Char": ("int8", 1)}
for one in recorded["entries"]:
    op, side = OPS[one["profiling_name"].removeprefix("nccl:")]
    datatype, size = KINDS[one[f"{side}_dtypes"][0]]
    print("TRUTH " + json.dumps({"pid": os.getpid(), "op": op, "bytes": math.prod(one[f"{side}_sizes"][0]) * size,
                                 "datatype": datatype, "rank": rank, "nranks": ranks}), flush=True)
dist.destroy_process_group()
'''

RANKS = {"plain": PLAIN, "ddp": TRAINING, "fsdp": TRAINING}


if __name__ == "__main__":
    sys.exit(main())
