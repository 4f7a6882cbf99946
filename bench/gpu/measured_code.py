"""The code that a result is measured with: its commit and version."""

import os
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
ASK_GIT = ["git", "describe", "--always", "--dirty", "--abbrev=7", "--exclude=*"]


def commit() -> str:
    """GPUWHY_COMMIT names it where there is a copy of the files and no repository."""
    if "GPUWHY_COMMIT" in os.environ:
        return os.environ["GPUWHY_COMMIT"]
    try:
        return subprocess.run(ASK_GIT, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError) as error:
        raise SystemExit(f"which commit is measured? Set GPUWHY_COMMIT; git does not say: {error}") from error


def version() -> str:
    return re.search(r'^version = "(.+)"$', (ROOT / "Cargo.toml").read_text(), re.MULTILINE).group(1)


def describe() -> dict:
    return {"commit": commit(), "version": version()}
