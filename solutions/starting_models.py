"""Makes the models that the experiments of going_further start from: `python solutions/starting_models.py`.

labutils/data/scratch_1.safetensors     pretrained for 4,000 steps with 1 % of the answers worked
labutils/data/scratch_01.safetensors    the same with 0.1 %
labutils/data/rare_1.safetensors        the lab's model, trained on with 1 % worked: it works as well, but seldom
labutils/data/rare_01.safetensors       the same with 0.1 %
labutils/data/repeating.safetensors     pretrained for responses of up to 24 tokens, whose states may stand repeatedly

A model that stands there already is not trained again. All five take about 15 minutes on two cores.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import joblib
import torch
from lab16_llm_rl import pretraining_loss

import labutils
from labutils import training
from labutils.checkpoints import save_model
from labutils.experiments import REPEATING_WORKED_RATE, SHIPPED_STARTS, pretrained_at, start_config
from labutils.model import Transformer
from labutils.repeating import encode_repeating
from labutils.training import PretrainingSettings

FOLDER = Path(labutils.__file__).parent / "data"


def repeating() -> Transformer:
    """A new model with room for 24 tokens, trained on worked answers with repeated states."""
    settings = PretrainingSettings(worked_rate=REPEATING_WORKED_RATE)
    encode = partial(encode_repeating, generator=torch.Generator().manual_seed(settings.seed))
    start = training.new_model(settings.seed, start_config("repeating"))
    return training.pretrain(pretraining_loss, settings, progress=False, start=start, encode=encode).model


def make(pretraining: str, worked_rate: float) -> None:
    """Train one of the models on one thread and write it."""
    with training.one_thread():
        repeats = pretraining == "repeating"
        model = repeating() if repeats else pretrained_at(pretraining, worked_rate, pretraining_loss)
    about = {"made by": "solutions/starting_models.py", "pretraining": pretraining, "worked_rate": worked_rate}
    save_model(FOLDER / f"{SHIPPED_STARTS[pretraining, worked_rate]}.safetensors", model, about)


def main() -> None:
    """Make the models that are missing."""
    missing = [key for key, name in SHIPPED_STARTS.items() if not (FOLDER / f"{name}.safetensors").exists()]
    joblib.Parallel(n_jobs=-1)(joblib.delayed(make)(*key) for key in missing)


if __name__ == "__main__":
    main()
