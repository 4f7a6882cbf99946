"""One rank of a small training: `python3 training_rank.py RANK RANKS SECONDS FAULT FAULT_RANK PORT ddp|fsdp`

All ranks share the one GPU: NCCL takes them for different hosts by their NCCL_HOSTID. With a FAULT the rank FAULT_RANK is
late in each step, for the reason that the fault is called after. Standard input is a socket: a byte goes out once all
is imported, and the GPU is not touched before one comes in. Prints JSON with its steps last.
"""

import json
import multiprocessing
import os
import sys
import tempfile
import time

LATE_S = 0.03
TURN = 0


def main() -> int:
    rank, ranks, seconds, fault, fault_rank, port, kind = sys.argv[1:]
    rank, ranks, seconds = int(rank), int(ranks), float(seconds)
    fault = fault if rank == int(fault_rank) else "none"
    os.environ.update(NCCL_HOSTID=f"host{rank}", NCCL_SOCKET_IFNAME="lo", NCCL_IB_DISABLE="1", MASTER_ADDR="127.0.0.1",
                      MASTER_PORT=port, RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_RANK="0")
    import torch
    import torch.distributed as dist
    import training

    os.write(TURN, b"r")
    os.read(TURN, 1)
    late = FAULTS[fault]()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    torch.cuda.set_device(0)
    dist.init_process_group("nccl")
    model = training.MODELS[kind]()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batches = iter(loader(fault, ranks))
    goes_on = torch.ones(1, device="cuda")
    end = time.monotonic() + seconds
    steps = 0
    while True:
        batch = next(batches).cuda()
        late()
        optimizer.zero_grad(set_to_none=True)
        loss = model(batch).pow(2).mean()
        loss.backward()
        optimizer.step()
        loss.item()
        steps += 1
        # All ranks end after the same step.
        if steps % 10 == 0:
            goes_on.fill_(time.monotonic() < end)
            dist.all_reduce(goes_on, op=dist.ReduceOp.MIN)
            if not goes_on.item():
                break
    # In one piece: other ranks write to the same pipe.
    sys.stdout.write(json.dumps({"rank": rank, "pid": os.getpid(), "steps": steps}) + "\n")
    sys.stdout.flush()
    dist.destroy_process_group()
    return 0


def loader(fault: str, ranks: int):
    import torch

    class Rows(torch.utils.data.IterableDataset):
        def __iter__(self):
            row = torch.zeros(64, 512)
            while True:
                if fault == "loader":
                    time.sleep(2 * LATE_S * ranks)  # as a slow file server does; ranks that share a GPU are slower
                yield row

    if fault == "loader":
        return torch.utils.data.DataLoader(Rows(), batch_size=None, num_workers=1, prefetch_factor=1)
    return Rows()


def nothing():
    return lambda: None


def asleep():
    return lambda: time.sleep(LATE_S)


def computing():
    def compute():
        end = time.thread_time() + LATE_S
        words = 0
        while time.thread_time() < end:
            words += sum(len(word) for word in "an ordinary line of text to be split into words".split())

    return compute


def writing():
    file = open(os.path.join(tempfile.gettempdir(), f"rank-{os.getpid()}"), "wb")
    os.unlink(file.name)
    block = os.urandom(4 << 20)

    def write():
        end = time.monotonic() + LATE_S
        while time.monotonic() < end:
            file.seek(0)
            file.write(block)
            file.flush()
            os.fsync(file.fileno())

    return write


def locked():
    lock = multiprocessing.Lock()
    holder = multiprocessing.Process(target=hold, args=(lock,), daemon=True)
    holder.start()

    def take():
        with lock:
            pass

    return take


def hold(lock) -> None:
    while True:
        with lock:
            time.sleep(LATE_S)
        time.sleep(0.001)


def crowded():
    """Two busy neighbours on the CPU that the rank runs on."""
    cpu = max(os.sched_getaffinity(0))
    for _ in range(2):
        multiprocessing.Process(target=spin, args=(cpu,), daemon=True).start()
    os.sched_setaffinity(0, {cpu})
    return lambda: None


def spin(cpu: int) -> None:
    os.sched_setaffinity(0, {cpu})
    while True:
        sum(range(1000))


def hanging():
    steps = iter(range(1, 1 << 30))

    def hang():
        if next(steps) == 15:
            time.sleep(3600)

    return hang


FAULTS = {"none": nothing, "sleep": asleep, "compute": computing, "io": writing, "lock": locked, "crowd": crowded,
          "loader": nothing, "hang": hanging}

if __name__ == "__main__":
    multiprocessing.set_start_method("fork")
    sys.exit(main())
