#!/bin/sh
# Traces a workload whose calls are known, once for each attach path that the running kernel should have, and prints
# a row of docs/kernels.md for each, and before that a line for each of the kernel's features that tracing uses. Runs on
# the host and in a bare initramfs alike, hence plain sh and few tools.
#
# usage: trial.sh GPUWHY TESTBED
set -u
gpuwhy=$1 testbed=$2
# The tracer looks there too, and so has the libraries attached before the first call.
export LD_LIBRARY_PATH="$testbed"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

# Two threads make two calls to set up their device and then a hundred rounds of nine calls, of which one sleeps and
# one waits for another thread.
made=1804 each=200
trace() {
    "$gpuwhy" trace --budget 0 --out "$dir/trace.db" "$@" -- "$testbed/workload" --threads 2 --calls 900 --mix all \
        --op cuStreamSynchronize --behave sleep --ns 5000000 --op cuEventRecord --behave futex --ns 1000000
}

ask() { "$gpuwhy" query "$dir/trace.db" "$1" --csv | tail -n +2; }

# Fields of the workload's lines about a function: 1 the thread, 2 the one that ends its waits, 3 the function, 4 calls.
truth() {
    sed -n "s/.*\"tid\":\([0-9]*\),.*\"releaser_tid\":\([0-9]*\),.*\"op\":\"\($1\)\",.*\"calls\":\([0-9]*\),.*/$2/p" \
        "$dir/truth" | sort
}

expect() { [ "$2" = "$3" ] || wrong="$wrong $1: $3 instead of $2;"; }
at_least() { [ "${3:-0}" -ge "$2" ] || wrong="$wrong $1: $3, below $2;"; }
same() { [ "$2" = "$3" ] || wrong="$wrong $1 differ;"; }

judge() {
    path=$1 wrong='' found=-
    shift
    rm -f "$dir"/*
    trace "$@" >"$dir/truth" || wrong=' trace failed;'
    ask "SELECT (SELECT attach_path FROM sessions) AS used,
            (SELECT sum(count) FROM call_stats) AS counted,
            count(*) AS kept,
            sum(running_ns + runqueue_ns + blocked_ns = duration_ns) AS split,
            sum(op = 'cuStreamSynchronize' AND blocked_on = 'sleep' AND woken_by_tid IS NULL) AS sleeps,
            sum(iif(op = 'cuStreamSynchronize', blocked_ns, 0)) / $each / 1000 AS slept_us,
            100 * sum(iif(op = 'cuStreamSynchronize', blocked_ns, 0))
                / sum(iif(op = 'cuStreamSynchronize', duration_ns, 0)) AS share,
            (SELECT coalesce(sum(count), 0) FROM losses) AS lost,
            (SELECT count(*) FROM warnings WHERE text LIKE '%refuses%' OR text LIKE 'not attached%') AS refused
        FROM cuda_events" >"$dir/sums"
    IFS=, read -r used counted kept split sleeps slept_us share lost refused <"$dir/sums"

    expect 'attach path' "$path" "$used"
    expect 'calls counted' "$made" "$counted"
    same 'calls by thread and function' "$(truth '.*' '\1,\3,\4')" \
        "$(ask 'SELECT tid, op, sum(count) FROM call_stats GROUP BY tid, op' | sort)"
    expect 'calls kept' "$made" "$kept"
    expect 'splits that hold' "$made" "$split"
    # A hypervisor that has the CPU while a timer runs out leaves nothing to sleep for: a few calls may miss theirs.
    at_least 'sleeps ended by a timer' $((each * 95 / 100)) "$sleeps"
    at_least 'us blocked in a sleep of 5 ms' 4500 "$slept_us"
    same 'wakers' "$(truth cuEventRecord '\1,\2')" \
        "$(ask "SELECT DISTINCT tid, woken_by_tid FROM cuda_events
            WHERE op = 'cuEventRecord' AND blocked_on = 'futex'" | sort)"
    expect 'lost' 0 "$lost"
    expect 'programs or probes refused' 0 "$refused"
    in_bursts "$@"
    with_stacks "$@"
    [ -z "$explain" ] || explained
    row "$path" "$made" "$counted" "$kept" "$split" "$share %" "$seen %" "$off %" "$whole %" "$found" "${wrong:-ok}"
}

row() {
    printf '| %s ' "$(uname -r)" "$@"
    echo '|'
}

# A job whose batches come from another process, which computes too long: that must be found first, and that process be
# to blame. Once for each kernel, by the path that the tracer takes by itself.
explained() {
    explain=''
    "$gpuwhy" demo slow-pipe --duration 12s --json >"$dir/explanation" || wrong="$wrong demo failed;"
    # The first finding only.
    sed -n '/"findings": \[$/,$p' "$dir/explanation" | sed '/^    }/q' >"$dir/finding"
    expect 'first cause' input-starved "$(field cause <"$dir/finding")"
    expect 'whose fault' loader "$(sed -n '/"culprit"/,$p' "$dir/finding" | field comm)"
    found=$(field cause <"$dir/finding")
}

field() { sed -n "s/.*\"$1\": \"\([^\"]*\)\".*/\1/p" | head -n 1; }

# A function that is seen in bursts only: links come and go, and the count is estimated.
in_bursts() {
    rm -f "$dir"/*
    "$gpuwhy" trace --budget 1% --rung bursts --out "$dir/trace.db" "$@" -- "$testbed/workload" --threads 1 \
        --mix launch --rate 4000 --duration 8 >"$dir/truth" || wrong="$wrong trace in bursts failed;"
    launches=$(truth cuLaunchKernel '\4')
    ask "SELECT 100 * sum(count) / sum(estimate) AS seen, 100 * abs(sum(estimate) - ${launches:-0}) / ${launches:-1} AS off,
            (SELECT count(*) FROM rungs WHERE rung = 'bursts') AS lowered
        FROM call_stats WHERE op = 'cuLaunchKernel'" >"$dir/sums"
    IFS=, read -r seen off lowered <"$dir/sums"
    at_least 'functions in bursts' 1 "$lowered"
    at_least 'percent seen' 1 "$seen"
    at_least 'percent not seen' 10 $((100 - ${seen:-100}))
    at_least 'percent right' 70 $((100 - ${off:-100}))
}

# Every stack of a few calls: of the last ones, once unwind tables are there, all must be walked to their end.
with_stacks() {
    rm -f "$dir"/*
    "$gpuwhy" trace --budget 0 --stacks all --out "$dir/trace.db" "$@" -- "$testbed/workload" --threads 1 --mix launch \
        --rate 20 --duration 8 >"$dir/truth" || wrong="$wrong trace with stacks failed;"
    ask "SELECT count(*) AS walks, 100 * sum(end = 'complete') / max(count(*), 1) AS whole,
            (SELECT count(*) FROM stack_lines WHERE module LIKE '%/workload' AND function <> '') AS named
        FROM cuda_events LEFT JOIN stacks ON stacks.id = stack_id
        WHERE timestamp_ns > (SELECT max(timestamp_ns) FROM cuda_events) - 3000000000" >"$dir/sums"
    IFS=, read -r walks whole named <"$dir/sums"
    at_least 'last calls' 20 "$walks"
    at_least 'percent of their stacks that are whole' 95 "$whole"
    at_least 'functions of the program on stacks' 1 "$named"
}

since() { [ "$(printf '%s\n' "$1" "$(uname -r)" | sort -V | head -n 1)" = "$1" ]; }

# Prints "feature KERNEL,NAME,STATE" for each feature.
features() {
    tr '{' '\n' <"$dir/check" | grep '"without":' |
        sed "s/.*\"name\":\"\([^\"]*\)\",\"ok\":\([a-z]*\),.*/feature $(uname -r),\1,\2/"
}

# A kernel that lacks what everything needs: `trace` has to refuse in the words of `check`.
refused() {
    why=$(sed -n 's/.*"ok":false,"required":true,"detail":"\([^"]*\)".*/\1/p' "$dir/check")
    wrong=''
    "$gpuwhy" trace --duration 1s --out "$dir/trace.db" >"$dir/refusal" 2>&1 && wrong=' it traced;'
    grep -qF "$why" "$dir/refusal" || wrong="$wrong trace does not say why;"
    row none - - - - - - - - "$why" "${wrong:-refused}"
}

"$gpuwhy" check >&2
"$gpuwhy" check --json >"$dir/check"
features
if ! grep -q '"can_trace":true' "$dir/check"; then
    refused
    exit
fi
explain=yes
# The best path is the one that the tracer takes by itself.
if since 6.13; then
    judge session
    judge multi --attach multi
    judge single --attach single
elif since 6.6; then
    judge multi
    judge single --attach single
else
    judge single
fi
