"""What a trace says about its stacks, as stacks.py asks it: how walks ended and what they cost."""

# Unwind tables are built in the first seconds.
BUILDING_NS = 10_000_000_000
LATER = f"bucket_ns >= (SELECT min(started_ns) FROM sessions) + {BUILDING_NS}"
MAIN_THREAD = "(SELECT tid FROM thread_times WHERE pid = tid GROUP BY tid ORDER BY sum(in_calls_ns) DESC LIMIT 1)"
MOMENTS = ("call", "wait", "waker")

QUESTIONS = {
    "walks": f"""SELECT moment, "end", python_end, {LATER} AS is_later, sum(count) AS walks,
        sum(walking_ns) AS walking_ns FROM stack_stats GROUP BY 1, 2, 3, 4 ORDER BY walks DESC""",
    "stacks": """SELECT count(*) AS stacks, count(depth) AS named, max(depth) AS deepest, round(avg(depth), 1) AS depth
        FROM stacks""",
    "kept": "SELECT count(*) AS calls, count(stack_id) AS with_stack FROM cuda_events",
    "calls": """SELECT op, count(*) AS kept, count(stack_id) AS with_stack, sum(duration_ns) AS ns,
        sum(duration_ns) FILTER (WHERE stack_id IS NOT NULL) AS with_stack_ns
        FROM cuda_events GROUP BY op ORDER BY with_stack DESC, kept DESC LIMIT 20""",
    "agent": f"""SELECT {LATER} AS is_later, sum(cpu_ns) AS cpu_ns, sum(hooks_ns) AS hooks_ns, sum(wall_ns) AS wall_ns
        FROM agent_usage GROUP BY 1""",
    # A bucket of a few milliseconds, at the beginning or the end, says nothing about a share.
    "tracer": f"""SELECT max(1.0 * tracer_ns / wall_ns) AS most, 1.0 * sum(tracer_ns) / sum(wall_ns) AS mean
        FROM thread_times WHERE tid = {MAIN_THREAD} AND wall_ns >= 500000000""",
    "call_sites": """SELECT op, kind, function, file, line, calls, total_ns FROM call_sites
        ORDER BY total_ns DESC LIMIT 12""",
    "wait_sites": """SELECT blocked_on, comm, kind, function, file, line, waits, total_ns FROM wait_sites
        ORDER BY total_ns DESC LIMIT 12""",
    "waker_sites": """SELECT blocked_on, comm, woken_by_comm, kind, function, file, line, waits, total_ns
        FROM waker_sites ORDER BY total_ns DESC LIMIT 12""",
    "launch_stack": """SELECT position, kind, function, file, line, module FROM stack_lines WHERE stack_id = (
        SELECT stack_id FROM cuda_events JOIN stacks ON stacks.id = stack_id WHERE op LIKE 'cuLaunchKernel%'
        ORDER BY stacks."end" = 'complete' DESC, depth DESC LIMIT 1) ORDER BY position""",
    "losses": "SELECT reason, count FROM losses ORDER BY count DESC",
    "warnings": "SELECT text FROM warnings ORDER BY at_ns LIMIT 20",
}


def shares(walks: list[dict], moment: str) -> dict:
    """Of the walks at this moment, or at all of them."""
    rows = [row for row in walks if moment in ("all", row["moment"])]
    number, ns = (sum(row[column] for row in rows) for column in ("walks", "walking_ns"))
    later = [row for row in rows if row["is_later"]]
    return {"walks": number, "mean_us": ns / number / 1e3 if number else None, "native": complete(rows, "end"),
            "native_later": complete(later, "end"), "python": complete(rows, "python_end"),
            "python_later": complete(later, "python_end")}


def complete(rows: list[dict], column: str) -> float | None:
    rows = [row for row in rows if has_something_to_walk(row, column)]
    number = sum(row["walks"] for row in rows)
    return sum(row["walks"] for row in rows if row[column] == "complete") / number if number else None


def has_something_to_walk(row: dict, column: str) -> bool:
    """A process that is not known yet may well run Python, so its stacks count as missing."""
    if column == "end":
        return row["end"] != "not_walked"
    return row["python_end"] not in ("not_python", "no_thread") or row["end"] == "no_process"
