"""Real PyTorch programs for the scripts beside this one. Each runs for a number of steps on whatever weights it makes."""

import torch


def gpt2():
    """GPT-2 small with random weights."""
    from transformers import GPT2Config, GPT2LMHeadModel

    with torch.device("cuda"):
        return GPT2LMHeadModel(GPT2Config())


def training():
    """One step of a GPT-2 small: forward, backward, optimizer, and the loss read back. The batch keeps the GPU busy longer
    than it takes to launch, as in training that somebody pays for."""
    model = gpt2()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    tokens = torch.randint(0, 50257, (8, 512), device="cuda")

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = model(tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def decode():
    """Sixteen tokens from the same model, one at a time."""
    model = gpt2().eval()
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


def storm():
    """Two thousand launches of a kernel that does next to nothing, as fast as Python issues them."""
    x = torch.zeros(1 << 10, device="cuda")

    def step():
        for _ in range(2000):
            x.add_(1)

    return step


def graph_decode():
    """Sixty-four tokens from the same model, each one replay of a CUDA graph and one read of the token."""
    model = gpt2().eval()
    window = torch.randint(0, 50257, (1, 32), device="cuda")

    @torch.no_grad()
    def forward():
        token = model(window, use_cache=False).logits[:, -1].argmax(-1, keepdim=True)
        window.copy_(torch.cat([window[:, 1:], token], dim=1))

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            forward()
    torch.cuda.synchronize()
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        forward()

    def step():
        for _ in range(64):
            captured.replay()
            window[0, -1].item()

    return step


class Images(torch.utils.data.Dataset):
    """Pictures that take a few milliseconds of CPU each, as decoding and resizing do."""

    def __len__(self):
        return 1024

    def __getitem__(self, index):
        picture = torch.full((1, 3, 256, 256), index % 251, dtype=torch.uint8).float()
        for size in (224, 288, 64):
            picture = torch.nn.functional.interpolate(picture, size=size, mode="bilinear", antialias=True)
        return picture[0] / 255, index % 10


def loader():
    """An epoch of a small network that waits for its four loading processes."""
    batches = torch.utils.data.DataLoader(Images(), batch_size=16, num_workers=4, pin_memory=True,
                                          persistent_workers=True)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 32, 3, stride=2), torch.nn.ReLU(), torch.nn.Flatten(),
                                torch.nn.LazyLinear(10)).cuda()
    model(torch.zeros(1, 3, 64, 64, device="cuda"))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def step():
        for pictures, labels in batches:
            optimizer.zero_grad(set_to_none=True)
            logits = model(pictures.cuda(non_blocking=True))
            loss = torch.nn.functional.cross_entropy(logits, labels.cuda(non_blocking=True))
            loss.backward()
            optimizer.step()

    return step


WORKLOADS = {"training": training, "decode": decode, "graph": graph, "allocation": allocation, "storm": storm,
             "graph_decode": graph_decode, "loader": loader}
