"""Real PyTorch programs for the scripts beside this one. Each runs for a number of steps on whatever weights it makes."""

import torch


def training():
    """One step of a GPT-2 small: forward, backward, optimizer, and the loss read back."""
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config()).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    tokens = torch.randint(0, 50257, (4, 256), device="cuda")

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = model(tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def decode():
    """Sixteen tokens from the same model, one at a time."""
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config()).cuda().eval()
    prompt = torch.randint(0, 50257, (1, 32), device="cuda")

    def step():
        with torch.no_grad():
            model.generate(prompt, max_new_tokens=16, min_new_tokens=16, do_sample=False, pad_token_id=0)

    return step


def graph():
    """A CUDA graph of twenty kernels, replayed a hundred times."""
    x = torch.zeros(1 << 16, device="cuda")
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        for _ in range(20):
            x.add_(1)

    def step():
        for _ in range(100):
            captured.replay()
        torch.cuda.synchronize()

    return step


def allocation():
    """Memory taken from the driver and given back in every step, with copies both ways."""
    host = torch.ones(1 << 20, pin_memory=True)

    def step():
        blocks = [torch.empty(64 << 20, dtype=torch.uint8, device="cuda") for _ in range(8)]
        device = host.to("cuda", non_blocking=True)
        device.zero_()
        device.cpu()
        del blocks, device
        torch.cuda.empty_cache()

    return step


WORKLOADS = {"training": training, "decode": decode, "graph": graph, "allocation": allocation}
