//! `docs/fleet.md` from the vocabulary of digests and the questions about clusters.

use std::fmt::Write;

use anyhow::Result;
use gpuwhy_fleet::QUANTITIES;
use gpuwhy_questions::FLEET_QUESTIONS;
use serde_json::Value;

use super::questions;
use super::results::{load, measured_on, number};

pub fn render() -> Result<Option<String>> {
    let mut text = String::from(
        "# The fleet

One place hears all nodes of a cluster and says which one holds the others up:

```console
$ gpuwhy fleet serve --addr 0.0.0.0:9470 --token-file token --tls-cert cert.pem --tls-key key.pem
$ sudo GPUWHY_FLEET_TOKEN=... gpuwhy trace --fleet https://fleet:9470 --cluster west      # on each node
$ gpuwhy fleet ask stragglers --fleet https://fleet:9470 --token-file token
```

The same questions are MCP tools at `/mcp` and `POST /api/v1/tools/NAME`, behind the same [tokens](#who-may-ask-and-tell), record of requests and limits as
[the doors](doors.md) of a trace.

## Who is late

Ranks leave a collective operation together and come to it apart: whoever comes last waits least. Each rank tells how many
operations it is done with and how long it has waited for them, and ranks are compared over the same operations, the last 1.5
seconds of them or two. No clock takes part in that, so clocks of nodes may be off by hours; a push that is lost, late or comes twice
changes nothing, since each contains the ones before. A rank is late by as much less as it waits than half of the ranks do.

It is a straggler when it is late for at least 3 % of the time, twice in a row with new operations in between, and more than is usual:
among five ranks and more, six deviations from the middle; among fewer, three times as much as others were lately. It is one no longer
after five seconds below half of that. At least half of the ranks of a communicator have to be heard. A node that says nothing for
five seconds is gone, and its ranks are compared with nobody.

A rank is compared with ranks, never with its own past: one that is slow from its first second is found.

Workers that have no collective operations are compared by how long their steps take, over five seconds, with those of the same program in
the same job (the label `job`), three of them at least. One is slow whose steps take at least 1.1 times as long as in the middle and six
deviations more, five times in a row (among fewer than six: 1.25 times), and slow no more after ten seconds below that. A job in which
all are slow has no slow worker.

What at least nine of ten stragglers have is told with them, if they are three or more: a label that less than half of all workers have and
that is late in half of its workers at least, such as a switch or a rack, or else their cause.

## What nodes are told in return

The answer to each push says how the sender's ranks stand. A node whose rank is late explains the last ten seconds of its own trace
and tells what it found, so that the answer to `stragglers` has the cause and the line. While the fleet is away a node goes by what it
said last, for five minutes; then by its own ranks among themselves. A fleet that is away harms nobody: pauses
between tries grow to half a minute, and what it was to be told waits, packed, up to 8 MB, which are hours. Of what there is no room for the
oldest goes, and the tracer says at its end how much that was.

## What is kept

`--data FOLDER` (`gpuwhy-fleet`) has a SQLite file for each cluster and a journal. A push goes into the journal before it is answered, and
every ten seconds into the file. So the server may be killed at any time: what it acknowledged is there, once, also where it is told
again. Where it cannot be written the answer says so (a partial success, as OpenTelemetry calls it), answers have `not_kept`, and who is late is
told all the same. One process at a time writes a folder; a file of a newer version is left as it is.

| table | kept for |
|---|---|
| `spans_10s` | two hours |
| `spans_1m` | two days |
| `spans_10m` | thirty days |
| `spans_1h`, `events` | two years |

When the folder becomes larger than `--max-size` (32 GB), the oldest goes first. A question about a time reads windows that are as fine as
can be read in a short while. [The tables](#tables) are for `fleet ask sql` and any SQLite tool.

What an hour of a GPU costs is in the file that is given as `--rates`:

```toml
currency = \"USD\"
other = 2.0            # of kinds that are not named
[gpus]
H200 = 3.5             # by a part of the name that the GPU has: NVIDIA H200
\"H100 NVL\" = 2.7
```

## Who may ask and tell

`--token-file`, or `GPUWHY_TOKEN`, is one token that is good for everything. `gpuwhy fleet serve --tokens FILE` knows many, each for what it
says; both work together.

```toml
[[token]]
name = \"dashboards of west\"        # as the record of requests calls it
token = \"...\"                      # or sha256 = \"64 digits\", or file = \"a file with it, beside this one\"
roles = [\"ask\"]                    # \"ask\", \"tell\" or both
clusters = [\"west\"]                # all clusters, if it is left out
until = \"2026-12-31T00:00:00Z\"     # for ever, if it is left out

[[token]]
name = \"nodes of west\"
file = \"secret-of-west\"
roles = [\"tell\"]
clusters = [\"west\"]
per_node = true
```

- Whoever has a token of some clusters gets the same answers, over HTTP and over MCP, as if there were no others.
- With `per_node` it is a secret that no node has. A node has the HMAC-SHA-256 of its name under it, which `gpuwhy fleet token --secret FILE
  --node NAME` prints, and with that it tells as itself and as no other: `host.name` has to be the name that it sends as `Gpuwhy-Node`, as
  `gpuwhy trace` does. Other senders set that header themselves.
- To replace a token, add the next one beside it, give the old one an `until`, and take it away when that is over. The file and those that it
  names are read again when they change, within a second of the next request. One that has become wrong changes nothing, and the log says why.
- No token, a wrong one and one that has expired are 401, with `no_token` or `wrong_token`; a token that is not for this is 403, with
  `wrong_role`, `foreign_cluster` or `foreign_node`. Of such a message nothing is taken. Each is a line of the
  [record of requests](doors.md#what-is-checked), with the token's name (`default` is the one of `--token-file`).
- A fleet that is being stopped answers what still comes with 503 and `Retry-After`; nodes tell it again once it is back.

## What nodes tell

Every second and for each process that feeds a GPU, as metrics of OpenTelemetry over HTTP (`POST /v1/metrics`, protobuf), so that any
receiver can take them and anybody can send them; a fleet takes them over gRPC, too. The process is the resource: `host.name`, `gpuwhy.cluster`,
`process.pid`, `process.executable.name`, `gpuwhy.device`, `gpuwhy.gpu` (what kind), and its labels as `gpuwhy.label.*`. What is found is
a log record (`POST /v1/logs`), as [`--otlp`](metrics.md) sends it. The header `Gpuwhy-Sent-Ns` says when a message was sent, by the clock of
its node: with that seconds which are told late lie where they belong.

| metric | unit | kind | attributes | what it is |
|---|---|---|---|---|
",
    );
    for quantity in QUANTITIES {
        let attributes = quantity.attributes.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        let kind = if quantity.is_sum() { "sum" } else { "gauge" };
        let (name, unit, help) = (quantity.name, quantity.unit, quantity.help);
        writeln!(text, "| `{name}` | `{unit}` | {kind} | {attributes} | {help} |")?;
    }
    if let Some(results) = load("fleet.json")? {
        measured(&mut text, &results)?;
    }
    text += "
Not there yet: a store that outgrows one machine, a page of the dashboard, alerts of the fleet.

# Questions of the fleet
";
    for question in FLEET_QUESTIONS {
        questions::describe(&mut text, question)?;
    }
    text += "\n# Tables\n\nOf a cluster's file. Times are nanoseconds since the Unix epoch.\n";
    text += &gpuwhy_history::tables_markdown();
    Ok(Some(text))
}

fn measured(text: &mut String, results: &Value) -> Result<()> {
    let fleet = &results["fleet"];
    writeln!(
        text,
        "\n## Measured\n\n{}\n\n`./dev bench fleet` on {}: simulated nodes of {} ranks in jobs of {} nodes push digests of a model over \
         real sockets to the real server, each once a second for {} s. The model runs on the same machine, so that one CPU is left to the \
         server. Then a rank of the first job is late by {:.0} % of each of its steps of {:.2} s, several times; found is when `stragglers` \
         names somebody.\n\n\
         | nodes | pushes a second | bytes of a rank and second | CPUs of the server | its memory | on disk | push, median | push, 99 of 100 | \
         ranks named although on time | found after | the right one alone |\n|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|---|",
        with_real_tracers(&fleet["real"]),
        measured_on(results),
        fleet["ranks_of_node"],
        fleet["nodes_of_job"],
        fleet["seconds"],
        number(&fleet["late"]) * 100.0,
        number(&fleet["step_ns"]) / 1e9,
    )?;
    for count in fleet["counts"].as_array().into_iter().flatten() {
        let found: Vec<f64> = count["found_after_s"].as_array().into_iter().flatten().map(number).collect();
        let longest = found.iter().copied().fold(0.0, f64::max);
        let shortest = found.iter().copied().fold(f64::INFINITY, f64::min);
        writeln!(
            text,
            "| {} | {:.0} | {:.0} | {:.2} | {:.0} MB | {:.0} MB | {:.1} ms | {:.1} ms | {} | {shortest:.1} to {longest:.1} s | {} of {} |",
            count["nodes"],
            number(&count["pushes_a_second"]),
            number(&count["bytes_of_rank_and_second"]),
            number(&count["cpu"]),
            number(&count["memory_mb"]),
            number(&count["kept_mb"]),
            number(&count["push_p50_us"]) / 1e3,
            number(&count["push_p99_us"]) / 1e3,
            count["false_alarms"],
            count["right"],
            found.len(),
        )?;
    }
    let day = &fleet["day"];
    writeln!(
        text,
        "\nA past of {} hours of {} nodes of {} ranks, written through the code that keeps what nodes tell, takes {:.0} MB. Questions about \
         it, over HTTP, the fastest of three:\n\n| question | seconds |\n|---|---:|",
        day["hours"],
        day["nodes"],
        fleet["ranks_of_node"],
        number(&day["kept_mb"]),
    )?;
    for question in day["questions"].as_array().into_iter().flatten() {
        let what = question["what"].as_str().unwrap_or_default();
        writeln!(text, "| {what} | {:.2} |", number(&question["seconds"]))?;
    }
    Ok(())
}

fn with_real_tracers(real: &Value) -> String {
    let runs = |key: &str| real[key].as_array().cloned().unwrap_or_default();
    let (late, healthy) = (runs("late"), runs("healthy"));
    let are = |key: &str| late.iter().filter(|run| run[key] == true).count();
    let mut found: Vec<f64> = late.iter().map(|run| number(&run["found_after_s"])).collect();
    found.sort_by(f64::total_cmp);
    let at = |index: usize| found.get(index).copied().unwrap_or(f64::NAN);
    format!(
        "Real tracers on {} hosts, which are network namespaces of one machine with two CPUs, and the {} ranks of a job on the fake GPU: \
         one becomes late by {} ms. The right rank and node, and nobody else, in {} of {} runs, after {:.1} s (median; {:.1} to {:.1} s), \
         within two of its iterations and a second in {}. In {} runs in which nobody is late, {} ranks were named.",
        real["nodes"],
        real["ranks"],
        real["late_ms"],
        are("is_right"),
        late.len(),
        at(found.len() / 2),
        at(0),
        at(found.len().saturating_sub(1)),
        are("is_soon"),
        healthy.len(),
        healthy.iter().map(|run| number(&run["named"])).sum::<f64>(),
    )
}
