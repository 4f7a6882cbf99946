/** The causes, in words for somebody who sees them for the first time. The ids are a closed list. */
const TITLES: Readonly<Record<string, string>> = {
  "cpu-preempted": "Others had the CPU",
  "cpu-throttled": "Stopped by a CPU quota",
  "lock-wait": "Waiting for a lock",
  "gil-wait": "Waiting for Python's interpreter lock",
  "io-wait": "Waiting for a disk",
  "page-fault": "Waiting for pages of memory",
  "memory-reclaim": "The kernel was freeing memory",
  "net-wait": "Waiting for the network",
  "tcp-retransmit": "Packets were lost on the way",
  "input-starved": "Input came too late",
  "driver-call": "Time went into the driver",
  "gpu-busy": "The GPU was busy",
  "alloc-churn": "Allocating GPU memory again and again",
  "alloc-failed": "GPU memory ran out",
  "memory-leak": "GPU memory only grows",
  "sync-storm": "Waiting for the GPU too often",
  "launch-bound": "Launching takes longer than the GPU's work",
  "pageable-copy": "Copies from pageable memory",
  "lazy-load": "Code was loaded in the hot path",
  "graph-recapture": "Graphs are captured again and again",
  "gpu-starved": "The GPU had nothing to do",
  straggler: "One rank is late",
  "collective-hang": "A collective never ended",
  "oom-kill": "A process was killed for memory",
};

export function causeTitle(cause: string): string {
  return TITLES[cause] ?? cause;
}
