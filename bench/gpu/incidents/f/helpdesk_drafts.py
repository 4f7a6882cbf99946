"""Drafts answers for a help desk: an asyncio server, a language model, a search service and a list of house rules."""
import asyncio, json, random, re, struct, subprocess, sys, time

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

TRUTH = {"cause": [["net-wait"], ["host-compute"]], "culprit": ["child:python", "self"], "line": "# FAULT", "alt_line": "# ALT"}

MAILS, PROMPT, REPLY, EDITED, VOCAB, MAILBOXES = 32, 1024, 4, 128, 8192, 32

SEARCH = r'''
import random, socket, struct, sys
tokens, vocab = map(int, sys.argv[1:])
rng = random.Random(1)
articles = [frozenset(rng.sample(range(vocab), 40)) for _ in range(2000)]
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
peer, _ = listener.accept()
peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
stream = peer.makefile("rwb")
while len(head := stream.read(8)) == 8:
    mailbox, depth = struct.unpack("<II", head)
    asked, best = set(rng.sample(range(vocab), 30)), mailbox
    for number in range(depth):
        best = max(best, 4096 * len(asked & articles[number % 2000]) + number % 4096)
    stream.write(random.Random(best).randbytes(2 * tokens))
    stream.flush()
'''

AGENTS = r'''
import asyncio, random, struct, sys
port, agents, seed, mailboxes = map(int, sys.argv[1:5])
think, rng = float(sys.argv[5]), random.Random(seed)
async def agent():
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while True:
        if think:
            await asyncio.sleep(rng.expovariate(1 / think))
        writer.write(struct.pack("<I", rng.randrange(mailboxes)))
        await reader.readexactly(4)
async def everybody():
    await asyncio.gather(*(agent() for _ in range(agents)))
asyncio.run(everybody())
'''

class Search:
    async def connect(self, port):
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", port)
        return self

    async def prompts(self, mailbox, depth):
        self.writer.write(struct.pack("<II", mailbox, depth))
        found = await self.reader.readexactly(2 * MAILS * PROMPT)  # FAULT
        return np.frombuffer(found, np.uint16).reshape(MAILS, PROMPT).astype(np.int64) % VOCAB

class Desk:
    def __init__(self, seed):
        torch.manual_seed(seed)
        rng = random.Random(seed)
        config = LlamaConfig(vocab_size=VOCAB, hidden_size=4096, intermediate_size=8192, num_hidden_layers=6,
                             num_attention_heads=32, num_key_value_heads=8, max_position_embeddings=2048,
                             bos_token_id=None, eos_token_id=None, pad_token_id=0)
        with torch.device("cuda"):
            self.model = LlamaForCausalLM(config).to(torch.bfloat16).eval()
        self.words = ["".join(rng.choices("abdeilmnorstu", k=rng.randint(3, 9))) for _ in range(VOCAB)]
        self.rules = [re.compile(rf"\b({word})\w*\s+(\w+)") for word in rng.sample(self.words, 400)]
        self.depth, self.used, self.known, self.waiting = 0, 1, None, asyncio.Queue()

    @torch.inference_mode()
    def draft(self, prompts):
        ids = torch.from_numpy(prompts).cuda()
        made = self.model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=REPLY, do_sample=False)
        return made[:, -EDITED:].tolist()

    def edit(self, drafts, used):
        texts = [" ".join([self.words[token] for token in draft]) for draft in drafts]
        for number in range(used):
            rule = self.rules[number % len(self.rules)]  # ALT
            texts = [rule.sub(r"\2 \1", text) for text in texts]  # FAULT
        return texts

    async def connection(self, reader, writer):
        try:
            while True:
                mailbox, = struct.unpack("<I", await reader.readexactly(4))
                answer = asyncio.get_running_loop().create_future()
                self.waiting.put_nowait((mailbox, answer))
                writer.write(struct.pack("<I", len(await answer)))
        except (OSError, asyncio.IncompleteReadError):
            writer.close()

    async def serve_one(self, search):
        mailbox, answer = await asyncio.wait_for(self.waiting.get(), 20)
        prompts = self.known[mailbox] if self.known else await search.prompts(mailbox, self.depth)  # ALT
        answer.set_result(self.edit(self.draft(prompts), self.used))  # ALT

async def serve(mode, seconds, seed, idle, children):
    children.append(subprocess.Popen([sys.executable, "-c", SEARCH, str(MAILS * PROMPT), str(VOCAB)],
                                     stdout=subprocess.PIPE, text=True))
    desk, clock = Desk(seed), time.perf_counter
    search = await Search().connect(int(children[0].stdout.readline()))
    prompts = await search.prompts(0, 0)
    desk.edit(desk.draft(prompts), 20)
    desk.draft(prompts)
    begin = clock()
    drafts = [desk.draft(prompts) for _ in range(3)][-1]
    each_s = (clock() - begin) / 3 * idle / (1 - idle) / 2      # how long each of the two faults may take
    begin = clock()
    await search.prompts(0, 50_000)
    searched = clock()
    desk.edit(drafts, 20)
    edited = clock()
    if mode == "fault":
        desk.depth = round(each_s / (searched - begin) * 50_000)
        desk.used = max(1, round(each_s / (edited - searched) * 20))
    else:
        desk.known = [await search.prompts(mailbox, 0) for mailbox in range(MAILBOXES)]
    listener = await asyncio.start_server(desk.connection, "127.0.0.1", 0)
    agents, think = (6, 0) if mode == "fault" else (3, 1.5)
    children.append(subprocess.Popen([sys.executable, "-c", AGENTS, *map(str, (
        listener.sockets[0].getsockname()[1], agents, seed, MAILBOXES, think))], stderr=subprocess.DEVNULL))
    steps, end = 0, clock() + seconds
    while clock() < end:
        await desk.serve_one(search)
        steps += 1
    listener.close()
    return steps

def main():
    idle, children = 0.1 if sys.argv[4:5] == ["weak"] else 0.5, []
    try:
        steps = asyncio.run(serve(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), idle, children))
    finally:
        for child in children:
            child.kill()
            child.wait()
    print(json.dumps({"steps": steps}))

main()
