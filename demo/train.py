"""Trains a demo model from scratch on the CPU."""

import argparse
import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch
from torch import nn
from torch.utils.data import DataLoader
from transformers import Qwen3VLForConditionalGeneration
from transformers.models.qwen3_vl.modeling_qwen3_vl import BaseModelOutputWithDeepstackFeatures

from demo.model import SIZES, TEXT_WIDTH, demo_config, save, thinned
from demo.products import ALL_KINDS, VALUES
from demo.samples import Batch, Samples
from demo.tokenizer import build_tokenizer

LOG_EVERY = 20
# As the committed models were made. Drawing takes most of a small model's time.
USUAL = {
    "full": {
        "out": Path("models/demo"),
        "steps": 2635,
        "phases": [700, 950, 1800, 1850, 2200],
        "minutes": 58.0,
        "text_rate": 1e-3,
        "vision_rate": 1.6e-3,
        "threads": 2,
        "workers": 1,
    },
    "small": {
        "out": Path("models/demo-small"),
        "begin": Path("models/demo"),
        "steps": 1000,
        "drawn": 200,
        "phases": [0],
        "minutes": 23.0,
        "text_rate": 8e-4,
        "vision_rate": 1.2e-3,
        "threads": 1,
        "workers": 2,
    },
}


@dataclass(frozen=True)
class Recipe:
    """Everything that decides what comes out of a run."""

    size: str  # a name of SIZES
    begin: Path | None  # the full model whose weights it begins with
    seed: int
    steps: int
    drawn: int  # batches with pictures of their own; later ones show these again
    phases: tuple[int, ...]  # steps at which training switches: eyes only, answers, eyes only, ...
    rows: int
    text_rate: float
    vision_rate: float
    minutes: float  # the rate also falls by the clock, so that a slow machine still finishes

    def eyes_only(self, step: int) -> bool:
        """Whether the step trains the vision tower alone, through the probes."""
        return sum(step >= switch for switch in self.phases) % 2 == 0


class Probes(nn.Module):
    """Reads each attribute straight off the visual tokens; thrown away after training.

    They teach the vision tower from the first step, when the text part cannot look at it yet, and
    a step through them costs less than half of one through the answers.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.queries = nn.Parameter(torch.randn(len(ALL_KINDS), width) * width**-0.5)
        self.norm = nn.LayerNorm(width)
        self.heads = nn.ModuleList(nn.Linear(2 * width, len(VALUES[kind])) for kind in ALL_KINDS)

    def forward(self, pictures: tuple[torch.Tensor, ...], classes: torch.Tensor) -> torch.Tensor:
        """The loss of every kind."""
        tokens = self.norm(nn.utils.rnn.pad_sequence(list(pictures), batch_first=True))
        sizes = torch.tensor([len(picture) for picture in pictures])
        missing = torch.arange(tokens.shape[1])[None] >= sizes[:, None]
        scores = torch.einsum("btd,kd->bkt", tokens, self.queries)
        looked = scores.masked_fill(missing[:, None], -1e4).softmax(-1) @ tokens
        mean = (tokens * ~missing[..., None]).sum(1) / sizes[:, None]
        losses = []
        for number, head in enumerate(self.heads):
            logits = head(torch.cat([looked[:, number], mean], -1))
            losses.append(nn.functional.cross_entropy(logits.float(), classes[:, number]))
        return torch.stack(losses)


class Trainer:
    """The model, its optimizer and where the run stands."""

    def __init__(self, recipe: Recipe, folder: Path) -> None:
        torch.manual_seed(recipe.seed)
        self.recipe, self.folder, self.shape = recipe, folder, SIZES[recipe.size]
        self.tokenizer = build_tokenizer()
        self.model = (
            thinned(self.tokenizer, self.shape, recipe.begin)
            if recipe.begin
            else Qwen3VLForConditionalGeneration(demo_config(self.tokenizer, self.shape))
        )
        # The fused attention's backward pass takes a third of a step where a mask is given.
        self.model.set_attn_implementation({"text_config": "eager", "vision_config": "sdpa"})
        self.probes = Probes(TEXT_WIDTH)
        self.optimizer = torch.optim.AdamW(self._groups(), betas=(0.9, 0.98), weight_decay=0.05)
        self.step, self.spent = 0, 0.0

    def _groups(self) -> list[dict[str, object]]:
        vision = [*self.model.model.visual.parameters(), *self.probes.parameters()]
        text = [*self.model.model.language_model.parameters()]
        return [
            {"params": vision, "base": self.recipe.vision_rate},
            {"params": text, "base": self.recipe.text_rate},
        ]

    def resume(self) -> None:
        """Goes on where a killed run of the same recipe stopped, if one did."""
        path = self.folder / "state.pt"
        if not path.exists():
            return
        state = torch.load(path, weights_only=True)
        if state["recipe"] != repr(self.recipe):
            return
        self.model.load_state_dict(state["model"])
        self.probes.load_state_dict(state["probes"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.step, self.spent = state["step"], state["spent"]

    def keep(self) -> None:
        """Writes all that a resumed run needs, in one atomic rename."""
        state = {
            "recipe": repr(self.recipe),
            "model": self.model.state_dict(),
            "probes": self.probes.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "step": self.step,
            "spent": self.spent,
        }
        fresh = self.folder / "state.tmp"
        torch.save(state, fresh)
        fresh.replace(self.folder / "state.pt")

    def forget(self) -> None:
        """Drops the state of a finished run, so that the next one starts anew."""
        (self.folder / "state.pt").unlink(missing_ok=True)

    def run(self, workers: int) -> None:
        """Trains to the last step, logging and keeping the state on the way."""
        samples = Samples(self.tokenizer, self.shape, self.recipe.seed, self.recipe.rows, self.recipe.drawn)
        numbers = range(self.step, self.recipe.steps)
        loader = DataLoader(samples, batch_size=None, sampler=numbers, num_workers=workers, prefetch_factor=4)
        started, before = time.monotonic(), self.spent
        total = torch.zeros(1 + len(ALL_KINDS))
        for batch in loader:
            total += self.learn(batch)
            self.step += 1
            self.spent = before + time.monotonic() - started
            if self.step % LOG_EVERY == 0:
                self._log(total / LOG_EVERY)
                total.zero_()
            if self.step % 50 == 0:
                self.keep()
            if self.progress() >= 1:
                break

    def progress(self) -> float:
        """How far the run is, by steps or by the clock, whichever is further."""
        return max(self.step / self.recipe.steps, self.spent / (60 * self.recipe.minutes))

    def learn(self, batch: Batch) -> torch.Tensor:
        """One step; gives the answer loss and the probes' losses."""
        self._set_rates()
        with torch.autocast("cpu", torch.bfloat16):
            features = see(self.model, batch)
            probed = self.probes(features.pooler_output, batch.classes)
            eyes_only = self.recipe.eyes_only(self.step)
            answered = torch.zeros(()) if eyes_only else answer_loss(self.model, batch, features)
        weight = 1.0 if eyes_only else 0.5
        (answered + weight * probed.mean()).backward()
        trained = [p for group in self.optimizer.param_groups for p in group["params"]]
        nn.utils.clip_grad_norm_(trained, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return torch.cat([answered.detach()[None], probed.detach()]).float()

    def _set_rates(self) -> None:
        """Short warm-up, then a cosine down to a fiftieth."""
        cosine = 0.5 * (1 + math.cos(math.pi * min(1.0, self.progress())))
        vision, text = self.optimizer.param_groups
        vision["lr"] = vision["base"] * max(0.02, cosine) * min(1, (self.step + 1) / 100)
        since = self.step - self.recipe.phases[0] + 1
        text["lr"] = text["base"] * max(0.02, cosine) * min(1, max(0, since) / 100)

    def _log(self, losses: torch.Tensor) -> None:
        answer, *probes = losses.tolist()
        kinds = " ".join(f"{k}={v:.3f}" for k, v in zip(ALL_KINDS, probes, strict=True))
        print(f"step={self.step} seconds={self.spent:.0f} answer={answer:.3f} {kinds}", flush=True)


def see(model: Qwen3VLForConditionalGeneration, batch: Batch) -> BaseModelOutputWithDeepstackFeatures:
    """The features of every picture; both frames of a patch are the same picture."""
    patches = (batch.patches.float() / 127.5 - 1).view(-1, 3, 1, 256)
    pixels = patches.expand(-1, 3, 2, 256).reshape(len(patches), -1)
    features = model.model.get_image_features(pixels, cast(torch.LongTensor, batch.grids))
    return cast(BaseModelOutputWithDeepstackFeatures, features)


def answer_loss(
    model: Qwen3VLForConditionalGeneration,
    batch: Batch,
    features: BaseModelOutputWithDeepstackFeatures,
) -> torch.Tensor:
    """Cross-entropy of the answers' tokens, all questions of a picture in one row."""
    hidden = model.model(
        input_ids=batch.ids,
        position_ids=batch.positions,
        attention_mask=torch.where(batch.mask, 0.0, -1e4).bfloat16(),
        mm_encoder_outputs={"image": features},
        use_cache=False,
    ).last_hidden_state
    asked = batch.targets != -100
    logits = model.lm_head(hidden[asked])
    return nn.functional.cross_entropy(logits.float(), batch.targets[asked])


def main() -> None:
    """Command line of scripts/train_demo_model."""
    parser = argparse.ArgumentParser(description="Train a demo model from scratch.")
    parser.add_argument("--size", choices=SIZES, default="full")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--begin", type=Path)
    parser.add_argument("--work", type=Path, default=Path(".vqueue/demo-training"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--drawn", type=int)
    parser.add_argument("--phases", type=int, nargs="+")
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--text-rate", type=float)
    parser.add_argument("--vision-rate", type=float)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--workers", type=int)
    parser.set_defaults(**USUAL[parser.parse_known_args()[0].size])
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    given.work.mkdir(parents=True, exist_ok=True)
    recipe = Recipe(
        size=given.size,
        begin=given.begin,
        seed=given.seed,
        steps=given.steps,
        drawn=given.drawn or given.steps,
        phases=tuple(given.phases),
        rows=given.rows,
        text_rate=given.text_rate,
        vision_rate=given.vision_rate,
        minutes=given.minutes,
    )
    trainer = Trainer(recipe, given.work)
    trainer.resume()
    trainer.run(given.workers)
    save(trainer.model, trainer.tokenizer, trainer.shape, given.out)
    trainer.forget()


if __name__ == "__main__":
    main()
