"""Learns formation energies of crystals with a graph network; DataLoader workers find each atom's neighbours."""
import itertools, json, sys, time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

TRUTH = {"cause": ["input-starved"], "culprit": ["child:pt_data_worker", "child:python"], "line": "# FAULT",
         "alt_line": "# ALT"}

CRYSTALS, ATOMS, DEGREE, BATCH, WORKERS = 512, 64, 16, 128, 4
WIDTH, LAYERS, SPECIES, EDGE = 512, 6, 90, 10.0
SHIFTS = np.array(list(itertools.product((0, -1, 1), repeat=3)), np.float32) * EDGE

class Crystals(Dataset):
    """Unit cells; atoms also see the periodic images of the others."""

    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        self.places = rng.random((CRYSTALS, ATOMS, 3), np.float32) * EDGE
        self.species = rng.integers(0, SPECIES, (CRYSTALS, ATOMS))
        self.energies = rng.standard_normal(CRYSTALS).astype(np.float32)
        self.images, self.known = 27.0, None

    def __len__(self):
        return 50_000_000

    def neighbours(self, crystal, images):
        nearest = np.full((ATOMS, ATOMS), np.inf, np.float32)
        apart = self.places[crystal][:, None] - self.places[crystal][None]
        for n in range(images):
            square = ((apart + SHIFTS[n % 27]) ** 2).sum(-1)  # ALT
            nearest = np.minimum(nearest, square)  # ALT
        np.fill_diagonal(nearest, np.inf)
        return np.argpartition(nearest, DEGREE, axis=1)[:, :DEGREE]

    def remember(self):
        self.known = [self.neighbours(crystal, 27) for crystal in range(CRYSTALS)]

    def __getitem__(self, index):
        crystal = index % CRYSTALS
        if self.known is not None:
            edges = self.known[crystal]
        else:       # large cells need more images than small ones
            edges = self.neighbours(crystal, int(self.images + index * 0.618034 % 1))  # ALT
        return self.species[crystal], edges, self.energies[crystal]

def collate(items):
    species, edges, energies = zip(*items)
    first = np.arange(len(items))[:, None, None] * ATOMS
    return (torch.from_numpy(np.concatenate(species)), torch.from_numpy((np.stack(edges) + first).reshape(-1)),
            torch.from_numpy(np.array(energies, np.float32)))

class Convolution(nn.Module):
    def __init__(self):
        super().__init__()
        self.own, self.other = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.message, self.update = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, atoms, sources):
        seen = torch.index_select(self.other(atoms), 0, sources).view(-1, DEGREE, WIDTH)
        messages = F.relu(self.message(F.relu(seen + self.own(atoms)[:, None])))
        return self.norm(atoms + self.update(messages.mean(1)))

class Energies(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(SPECIES, WIDTH)
        self.layers = nn.ModuleList(Convolution() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, 1)

    def forward(self, species, sources):
        atoms = self.embed(species)
        for layer in self.layers:
            atoms = layer(atoms, sources)
        return self.head(atoms.view(-1, ATOMS, WIDTH).mean(1))[:, 0]

class Trainer:
    def __init__(self):
        self.model = Energies().to("cuda", torch.bfloat16)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-4, fused=True)

    def step(self, batch):
        species, sources, energies = (part.cuda(non_blocking=True) for part in batch)
        loss = F.mse_loss(self.model(species, sources).float(), energies)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss

def timed(function, times):
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(times):
        function()
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) / times

def images_for(crystals, batch_s):
    """How many periodic images the workers look at, so that a batch takes one worker batch_s."""
    cost = []
    for crystals.images in (2.0, 8.0):
        timed(lambda: collate([crystals[n] for n in range(BATCH)]), 1)
        cost.append(timed(lambda: collate([crystals[n] for n in range(BATCH)]), 4))
    each = (cost[1] - cost[0]) / 6
    return max(1.0, 2.0 + (batch_s - cost[0]) / each)

def main():
    mode, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    demand = 1.09 if sys.argv[4:5] == ["weak"] else 2.0
    torch.manual_seed(seed)
    trainer, crystals = Trainer(), Crystals(seed)
    sample = [part.pin_memory() for part in collate([crystals[n] for n in range(BATCH)])]
    timed(lambda: trainer.step(sample), 8)
    step_s = timed(lambda: trainer.step(sample), 20)
    if mode == "healthy":
        crystals.remember()
    else:
        crystals.images = images_for(crystals, demand * step_s * WORKERS)
    loader = DataLoader(crystals, BATCH, num_workers=WORKERS, collate_fn=collate, pin_memory=True,
                        multiprocessing_context="fork")
    batches = iter(loader)
    trainer.step(next(batches))
    steps, end = 0, time.perf_counter() + seconds
    for batch in batches:  # FAULT
        loss = trainer.step(batch)
        steps += 1
        if steps % 50 == 0:
            print(f"step {steps} error {loss.item():.4f}", flush=True)
        if time.perf_counter() >= end:
            break
    torch.cuda.synchronize()
    print(json.dumps({"steps": steps}))

if __name__ == "__main__":
    main()
