"""Finds whale songs in hydrophone recordings: correlates each buffer of the recorder's ring with a book of known calls."""
import json
import mmap
import sys
import time

import numpy as np
import torch

TRUTH = {"cause": ["driver-call"], "culprit": "self", "line": "# FAULT", "alt_line": "# ALT"}

RING, CLIPS, SAMPLES, CALLS, RATE = 4, 256, 1 << 18, 16, 16000


def call_book():
    """Upsweeps and downsweeps of different lengths, as spectra ready for correlation."""
    clock = torch.arange(SAMPLES, device="cuda") / RATE
    book = []
    for number in range(CALLS):
        length = 0.5 + 0.1 * number
        pitch = 60 + 40 * number + (-1) ** number * 30 * clock
        call = torch.sin(2 * torch.pi * pitch * clock) * (clock < length)
        book.append(torch.fft.rfft(call).conj())
    return book


class Recorder:
    """The ring that the hydrophone's driver fills: shared memory, one buffer after another."""

    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        noise = rng.integers(-3000, 3000, SAMPLES * 16, dtype=np.int16)
        self.buffers = []
        for number in range(RING):
            buffer = np.frombuffer(mmap.mmap(-1, CLIPS * SAMPLES * 2), np.int16).reshape(-1, len(noise))
            buffer[:] = np.roll(noise, 1000 * number)
            self.buffers.append(torch.from_numpy(buffer).view(CLIPS, SAMPLES))

    def __getitem__(self, number):
        return self.buffers[number % RING]


class Listener:
    def __init__(self, recorder):
        self.recorder, self.book, self.cudart = recorder, call_book(), torch.cuda.cudart()
        self.loading = torch.cuda.Stream()

    def lock_pages(self, buffer):
        self.cudart.cudaHostRegister(buffer.data_ptr(), buffer.nbytes, 0)  # FAULT

    def unlock_pages(self, buffer):
        self.cudart.cudaHostUnregister(buffer.data_ptr())  # FAULT

    def prefetch(self, number):
        with torch.cuda.stream(self.loading):
            return self.recorder[number].to("cuda", non_blocking=True)

    def arrived(self, waves):
        torch.cuda.current_stream().wait_stream(self.loading)
        waves.record_stream(torch.cuda.current_stream())
        return waves

    @torch.inference_mode()
    def launch(self, waves, calls):
        """The best score of every clip over so many calls of the book."""
        spectra = torch.fft.rfft(waves.float())
        best = torch.zeros(CLIPS, device="cuda")
        for number in range(calls):
            match = torch.fft.irfft(spectra * self.book[number % CALLS], n=SAMPLES)
            best = torch.maximum(best, match.amax(1))
        return best

    def hear(self, number, calls):
        """Page-locks the buffer for a fast copy, scores it and gives the pages back."""
        buffer = self.recorder[number]
        self.lock_pages(buffer)  # ALT
        scores = self.launch(buffer.to("cuda", non_blocking=True), calls).tolist()
        self.unlock_pages(buffer)  # ALT
        return scores


def timed(function, times):
    begin = time.perf_counter()
    for number in range(times):
        function(number)
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) / times


def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    idle = 0.1 if sys.argv[4:5] == ["weak"] else 0.5
    torch.manual_seed(seed)
    listener = Listener(Recorder(seed))
    waves = listener.recorder[0].cuda()
    listener.launch(waves, CALLS)
    first_s = timed(lambda _: listener.launch(waves, 1).tolist(), 4)
    call_s = (timed(lambda _: listener.launch(waves, 1 + CALLS).tolist(), 4) - first_s) / CALLS
    del waves

    def lock_and_unlock(number):
        listener.lock_pages(listener.recorder[number])
        listener.unlock_pages(listener.recorder[number])

    lock_and_unlock(0)
    lock_s = timed(lock_and_unlock, 2 * RING)
    calls = max(1, 1 + round((lock_s * (1 - idle) / idle - first_s) / call_s))
    if mode == "healthy":           # the whole ring is page-locked once
        for buffer in listener.recorder.buffers:
            listener.lock_pages(buffer)
            assert buffer.is_pinned()
        upcoming = listener.prefetch(0)
    steps, songs, end = 0, 0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        if mode == "fault":
            scores = listener.hear(steps, calls)  # ALT
        else:
            waves = listener.arrived(upcoming)
            pending = listener.launch(waves, calls)
            upcoming = listener.prefetch(steps + 1)
            scores = pending.tolist()
        songs += sum(score > 1e6 for score in scores)
        steps += 1
        if steps % 100 == 0:
            print(f"buffer {steps}: {songs} songs so far", flush=True)
    torch.cuda.synchronize()
    print(json.dumps({"steps": steps}))


main()
