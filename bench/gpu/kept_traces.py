"""Traces that are brought home from a machine with a GPU, to be explained anew where there is none."""

import lzma
import tarfile
import threading
from io import BytesIO
from pathlib import Path

# What one archive may weigh, and how many there may be.
MOST_BYTES = 15 << 20
MOST_ARCHIVES = 4


class KeptTraces:
    """Packs finished traces, each compressed on its own, into `traces-N.tar`. What finds no room is left out and told."""

    def __init__(self, folder: Path | None):
        self.folder = folder
        self.sizes = [0] * MOST_ARCHIVES
        self.one_at_a_time = threading.Lock()

    def keep(self, trace: Path, name: str) -> None:
        if self.folder is None:
            return
        packed = lzma.compress(trace.read_bytes(), preset=1)
        with self.one_at_a_time:
            for number, size in enumerate(self.sizes):
                if size + len(packed) <= MOST_BYTES:
                    self.sizes[number] += len(packed)
                    self.add(number, f"{name}.db.xz", packed)
                    return
        print(f"no room for the trace of {name}: {len(packed) >> 20} MiB", flush=True)

    def add(self, number: int, name: str, packed: bytes) -> None:
        with tarfile.open(self.folder / f"traces-{number}.tar", "a") as archive:
            member = tarfile.TarInfo(name)
            member.size = len(packed)
            archive.addfile(member, BytesIO(packed))


def unpack(archives: list[Path], folder: Path) -> None:
    for archive in archives:
        with tarfile.open(archive) as members:
            for member in members:
                name = Path(member.name).name.removesuffix(".xz")
                (folder / name).write_bytes(lzma.decompress(members.extractfile(member).read()))
