"""The MCP conformance suite against the doors: with the questions behind them, and with the tools, resources and prompts
that its scenarios want (`crates/outputs/examples/conformance.rs`). Whatever applies has to pass; what does not is listed
here with the reason, and the list may name no scenario that is not there and no check that passes."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections import defaultdict
from contextlib import contextmanager
from pathlib import Path

from served import address_of, server

SUITE = os.environ["CONFORMANCE"].split()
FIXTURE = os.environ["CONFORMANCE_FIXTURE"]
REVISIONS = ["2025-11-25", "2026-07-28"]

# Scenarios by the start of their name.
NOT_APPLICABLE = {
    "logging-": "no log is sent to clients",
    "tools-call-with-logging": "no log is sent to clients",
    "tools-call-sampling": "the client's model is not asked",
    "tools-call-elicitation": "the user is not asked",
    "elicitation-": "the user is not asked",
    "input-required-result-": "neither the user nor the client's model is asked",
    "resources-subscribe": "resources cannot be subscribed to",
    "resources-unsubscribe": "resources cannot be subscribed to",
    "server-sse-": "calls that tell nothing on their way are answered as JSON, which has no stream to poll",
}
# Checks that want tools which log, ask the user, or need a client's capability.
NOT_APPLICABLE_CHECKS = {
    "sep-2575-server-rejects-undeclared-capability": "no tool needs a capability of the client",
    "sep-2575-missing-capability-http-400": "no tool needs a capability of the client",
    "sep-2575-http-server-no-independent-requests-on-stream": "the user is not asked",
    "sep-2575-server-no-log-without-loglevel": "no log is sent to clients",
}
# Scenarios that call things by name, which only the fixture has.
WANTS_FIXTURE = (
    "tools-call-", "json-schema-", "resources-read-", "resources-templates-", "prompts-get-",
    "http-custom-header-server-validation",
)


def checks_of(url, revision):
    """What each scenario checked: its name, then id and status."""
    with tempfile.TemporaryDirectory() as folder:
        command = [*SUITE, "server", "--url", url, "--suite", "all", "--spec-version", revision, "-o", folder]
        ran = subprocess.run([*command, "--timeout", "10000"], capture_output=True, text=True, timeout=200)
        results = {}
        for file in Path(folder).glob("server-*/checks.json"):
            name = re.sub(r"-\d{4}-\d\d-\d\dT.*", "", file.parent.name.removeprefix("server-"))
            results[name] = json.loads(file.read_text())
    assert len(results) > 25, f"only {len(results)} scenarios ran\n{ran.stdout[-3000:]}\n{ran.stderr[-3000:]}"
    return results


def judge(who, revision, results, excused):
    """Prints what passed; gives what failed and is not excused."""
    passed, failed, skipped = [], [], defaultdict(list)
    for scenario, checks in sorted(results.items()):
        reason = next((why for start, why in NOT_APPLICABLE.items() if scenario.startswith(start)), None)
        wrong = [check for check in checks if check["status"] == "FAILURE"]
        excused |= {start for start in NOT_APPLICABLE if scenario.startswith(start)}
        if reason is None and who == "gpuwhy" and wrong and scenario.startswith(WANTS_FIXTURE):
            reason = "it wants the fixture"
        if reason:
            skipped[reason].append(scenario)
            continue
        excused |= {check["id"] for check in wrong if check["id"] in NOT_APPLICABLE_CHECKS}
        for check in wrong:
            if why := NOT_APPLICABLE_CHECKS.get(check["id"]):
                skipped[why].append(f"{scenario}/{check['id']}")
        wrong = [check for check in wrong if check["id"] not in NOT_APPLICABLE_CHECKS]
        failed += [f"{who}, {revision}, {scenario}: {check['id']}: {check.get('errorMessage', '')[:300]}" for check in wrong]
        if not wrong and any(check["status"] == "SUCCESS" for check in checks):
            passed.append(scenario)
    print(f"  {who}, {revision}: {len(passed)} of {len(results)} scenarios pass: {', '.join(passed)}")
    for reason, names in skipped.items():
        print(f"  {who}, {revision}: not applicable, {reason}: {', '.join(names)}")
    return passed, failed


@contextmanager
def fixture():
    process = subprocess.Popen([FIXTURE], stderr=subprocess.PIPE, text=True)
    try:
        yield address_of(process)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(10)


def main():
    excused, failures = set(), []
    with server("--rate", "10000") as (questions, _), fixture() as tools:
        for revision in REVISIONS:
            for who, address in (("gpuwhy", questions), ("fixture", tools)):
                passed, failed = judge(who, revision, checks_of(f"{address}/mcp", revision), excused)
                failures += failed
                if who == "fixture":
                    missed = [start for start in WANTS_FIXTURE if not any(name.startswith(start) for name in passed)]
                    # Custom headers came with the newest revision.
                    failures += [f"{start}... did not run in {revision}" for start in missed
                                 if not (revision < "2026" and start.startswith("http-"))]
    stale = (set(NOT_APPLICABLE) | set(NOT_APPLICABLE_CHECKS)) - excused
    failures += [f"{name} is excused without need" for name in stale]
    print("\n".join(f"  FAILED {failure}" for failure in failures))
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
