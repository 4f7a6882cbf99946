"""schemathesis against the HTTP API, by the document that the server gives of itself: it sends what the document allows and
what it does not, and every answer has to be one that the document describes. No answer may be a server's error."""

import json
import os
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

from openapi_spec_validator import OpenAPIV31SpecValidator

from served import server

HERE = Path(__file__).parent
TOKEN = "0123456789abcdef0123456789abcdef"
EXAMPLES = os.environ.get("GPUWHY_PEERS_EXAMPLES", "15")


def main():
    with tempfile.TemporaryDirectory() as folder:
        token = Path(folder, "token")
        token.write_text(TOKEN)
        with server("--token-file", str(token), "--rate", "1000000") as (address, _):
            document = fetch(address)
            OpenAPIV31SpecValidator(document).validate()
            print(f"  the document is OpenAPI {document['openapi']}, {len(document['paths'])} paths")
            whole, loose = Path(folder, "whole.json"), Path(folder, "loose.json")
            whole.write_text(json.dumps(document))
            loose.write_text(json.dumps(without_tuples(document)))
            code = schemathesis(address, whole, loose, folder)
    sys.exit(code)


def fetch(address):
    request = urllib.request.Request(f"{address}/api/v1/openapi.json", headers={"Authorization": f"Bearer {TOKEN}"})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def without_tuples(schema):
    """schemathesis 4.32 takes its own rewriting of `prefixItems` for an error of the document. `hooks.py` checks answers by
    the document as it is."""
    if isinstance(schema, list):
        return [without_tuples(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    changed = {name: without_tuples(part) for name, part in schema.items()}
    if "prefixItems" in changed:
        changed["items"] = {"anyOf": changed.pop("prefixItems")}
    return changed


def schemathesis(address, whole, loose, folder):
    command = [
        Path(sys.executable).with_name("st"), "--config-file", HERE / "openapi/schemathesis.toml", "run", loose,
        "--url", address, "--header", f"Authorization: Bearer {TOKEN}", "--checks", "all",
        "--phases", "examples,coverage,fuzzing", "--max-examples", EXAMPLES, "--seed", "1", "--workers", "2",
        # It makes a stall on this machine.
        "--exclude-path-regex", "/(run_)?demo$",
        "--warnings", "off", "--no-color",
    ]
    surroundings = {**os.environ, "SCHEMATHESIS_HOOKS": "hooks", "PYTHONPATH": str(HERE / "openapi"), "DOCUMENT": str(whole)}
    ran = subprocess.run(command, cwd=folder, env=surroundings, text=True, capture_output=True, timeout=240)
    # A failure may quote a megabyte.
    lines = [line[:300] for line in (ran.stdout + ran.stderr).splitlines() if line.strip()]
    shown = lines if ran.returncode else lines[-12:]
    print("\n".join(f"  {line}" for line in shown[-200:]))
    return ran.returncode


if __name__ == "__main__":
    main()
