"""The machine that a result comes from."""

import datetime
import os
import platform
import subprocess


def describe() -> dict:
    import torch

    command = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    smi = subprocess.run(command, capture_output=True, text=True, check=True)
    gpu, driver = (part.strip() for part in smi.stdout.strip().splitlines()[0].split(","))
    return {"gpu": gpu, "driver": driver, "cuda": torch.version.cuda, "torch": torch.__version__,
            "python": platform.python_version(), "kernel": platform.release(), "cpus": os.cpu_count(),
            "date": datetime.date.today().isoformat()}
