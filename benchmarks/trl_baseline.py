"""What a reinforcement-learning step of the lab costs with TRL's `GRPOTrainer`: same model, prompts, tokens.

The estimator is Dr. GRPO, and the trainer is set up to do no more than the lab does: float32, no gradient
checkpointing, no clipping of gradients, no logging. `python benchmarks/trl_baseline.py` prints the median.

TRL and what it needs are imported where they are used: importing this file must stay cheap, because the
benchmark reports the memory of processes that import it without running TRL.
"""

from __future__ import annotations

import importlib
import os
import statistics
import tempfile
import time
import warnings
from itertools import pairwise
from typing import Any

import joblib
import torch
from torch import Tensor, nn

from labutils.errors import LabError
from labutils.model import Transformer
from labutils.task import (
    END,
    PAD,
    RESPONSE_TOKENS,
    TOKEN_TEXT,
    Problems,
    encode_prompts,
    encode_responses,
    sample_problems,
)
from labutils.training import new_model
from labutils.verifier import verify

PROMPTS, GROUP_SIZE, WARMUP_STEPS = 32, 8, 2
LOGIT_TOLERANCE = 1e-4  # between two float32 implementations of one model

# GPT-2's modules and the lab's names for them: those outside the blocks, and those of a block.
OUTSIDE = {
    "transformer.wte": "token_embedding",
    "transformer.wpe": "position_embedding",
    "transformer.ln_f": "norm",
    "lm_head": "head",
}
OF_A_BLOCK = {
    "ln_1": "attention_norm",
    "attn.c_attn": "query_key_value",
    "attn.c_proj": "attention_out",
    "ln_2": "mlp_norm",
    "mlp.c_fc": "mlp_in",
    "mlp.c_proj": "mlp_out",
}

# One gradient step of Dr. GRPO for all responses to a batch of prompts, as the lab takes it.
LAB_STEP = {
    "per_device_train_batch_size": PROMPTS * GROUP_SIZE,  # counts responses
    "gradient_accumulation_steps": 1,
    "steps_per_generation": 1,
    "num_iterations": 1,
    "num_generations": GROUP_SIZE,
    "max_completion_length": RESPONSE_TOKENS,
    "temperature": 1.0,
    "top_k": 0,
    "top_p": 1.0,
    "loss_type": "dr_grpo",
    "scale_rewards": "none",
    "beta": 0.0,
    "learning_rate": 0.0,  # so that every step costs what the given policy costs
    "lr_scheduler_type": "constant",
    "optim": "adamw_torch_fused",
    "weight_decay": 0.0,
    "max_grad_norm": 0.0,
}
# What the trainer would do besides, or do more slowly on a CPU.
NOTHING_ELSE = {
    "use_cpu": True,
    "bf16": False,
    "gradient_checkpointing": False,  # on by default: saves memory by computing the forward pass twice
    "dataloader_pin_memory": False,
    "logging_strategy": "no",
    "save_strategy": "no",
    "report_to": "none",
    "disable_tqdm": True,
}


def step_seconds(model: Transformer, steps: int, threads: int) -> list[float]:
    """Wall time in seconds of each of `steps` optimizer steps, generation included, after two of warm-up.

    A step is 32 prompts with 8 responses each. `model` is where training starts and stays as it is.
    threads: how many PyTorch uses, from here on. Raises `LabError` for a number of steps below 1.
    """
    if steps < 1:
        raise LabError(f"{steps} steps; at least 1 is needed")
    _stay_quiet_and_offline()
    torch.set_num_threads(threads)
    every = steps + WARMUP_STEPS
    problems = sample_problems(PROMPTS * every, torch.Generator().manual_seed(0))
    gpt2, tokenizer = gpt2_model(model), lab_tokenizer()
    _check(gpt2, tokenizer, model, problems[:PROMPTS])
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        marks = _train(gpt2, tokenizer, problems, folder)
    return [after - before for before, after in pairwise(marks)][WARMUP_STEPS:]


def _stay_quiet_and_offline() -> None:
    """Everything is made in memory, so no library has a reason to look for files elsewhere."""
    settings = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
    settings |= {"TRANSFORMERS_VERBOSITY": "error", "TOKENIZERS_PARALLELISM": "false"}
    for name, value in settings.items():
        os.environ.setdefault(name, value)


def _library(name: str) -> Any:
    """The module of that name. Raises `LabError` where it is not installed, as it need not be for the lab."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise LabError(f"{error.name} is not installed; `make bench` installs what is needed") from error


def gpt2_model(model: Transformer) -> Any:
    """A `GPT2LMHeadModel` that computes the same logits, with weights of its own."""
    transformers, size = _library("transformers"), model.config
    config = transformers.GPT2Config(
        vocab_size=size.vocabulary,
        n_positions=size.positions,
        n_embd=size.width,
        n_layer=size.layers,
        n_head=size.heads,
        activation_function="gelu",  # the exact one; GPT-2's own is an approximation
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        resid_pdrop=0.0,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=END,
        pad_token_id=PAD,
    )
    gpt2 = transformers.GPT2LMHeadModel(config)
    gpt2.lm_head = nn.Linear(size.width, size.vocabulary)  # GPT-2's has no bias; the lab's has
    gpt2.load_state_dict(gpt2_weights(model))
    return gpt2


def gpt2_weights(model: Transformer) -> dict[str, Tensor]:
    """The lab model's weights under GPT-2's names and in its layout."""
    names = dict(OUTSIDE)
    for layer in range(model.config.layers):
        for theirs, ours in OF_A_BLOCK.items():
            names[f"transformer.h.{layer}.{theirs}"] = f"blocks.{layer}.{ours}"
    own, weights = model.state_dict(), {}
    for theirs, ours in names.items():
        for kind in ("weight", "bias"):
            value = own.get(f"{ours}.{kind}")
            if value is not None:  # an embedding has no bias
                # The linear layers of a GPT-2 block, and only they, store their matrix transposed.
                transposed = ".c_" in theirs and kind == "weight"
                weights[f"{theirs}.{kind}"] = value.T if transposed else value
    return weights


def lab_tokenizer() -> Any:
    """A `PreTrainedTokenizerFast` of the lab's 15 tokens, which the text separates by spaces."""
    tokenizers, transformers = _library("tokenizers"), _library("transformers")
    vocabulary = {text: token for token, text in enumerate(TOKEN_TEXT)}
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token=TOKEN_TEXT[PAD]))
    words.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    # Every prompt has 9 tokens, so the trainer adds no padding, and it masks only padding that it adds:
    # the lab's own stays visible to the model, as in the lab.
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token=TOKEN_TEXT[PAD], eos_token=TOKEN_TEXT[END], padding_side="left"
    )


def prompt_texts(problems: Problems) -> list[str]:
    """The prompts as text, padding included."""
    return [" ".join(TOKEN_TEXT[token] for token in prompt) for prompt in encode_prompts(problems).tolist()]


def _check(gpt2: Any, tokenizer: Any, model: Transformer, problems: Problems) -> None:
    """Raise `LabError` unless the tokens and the logits are the lab's."""
    prompts = encode_prompts(problems)
    encoded = tokenizer(text=prompt_texts(problems))["input_ids"]
    if encoded != prompts.tolist():
        raise LabError("the tokenizer's prompts are not the lab's tokens")
    worked = torch.arange(len(problems)) % 2 == 0
    tokens = torch.cat([prompts, encode_responses(problems, worked)], 1)
    with torch.no_grad():
        logits = gpt2.eval()(tokens, attention_mask=torch.ones_like(tokens)).logits
        difference = float((logits - model(tokens)).abs().max())
    if not difference <= LOGIT_TOLERANCE:
        raise LabError(f"GPT-2's logits are {difference:.2g} off the lab's; allowed is {LOGIT_TOLERANCE}")


def reward(completion_ids: list[list[int]], digits: list[list[int]], **_: Any) -> list[float]:
    """1.0 for each response that the lab's verifier accepts, else 0.0."""
    padded = [response + [PAD] * (RESPONSE_TOKENS - len(response)) for response in completion_ids]
    return verify(Problems.from_digits(digits), torch.tensor(padded)).float().tolist()


def _train(gpt2: Any, tokenizer: Any, problems: Problems, folder: str) -> list[float]:
    """The clock in seconds when training began and when each step ended; every problem is used once.

    folder: where the trainer would write, if it wrote anything.
    """
    trl, transformers = _library("trl"), _library("transformers")
    digits = [[digit for digit in row if digit != PAD] for row in problems.digits.tolist()]
    columns = {"prompt": prompt_texts(problems), "digits": digits}
    steps, marks = len(problems) // PROMPTS, list[float]()
    trainer = trl.GRPOTrainer(
        model=gpt2,
        reward_funcs=reward,
        args=trl.GRPOConfig(output_dir=folder, max_steps=steps, **LAB_STEP, **NOTHING_ELSE),
        train_dataset=_library("datasets").Dataset.from_dict(columns),
        processing_class=tokenizer,
        callbacks=[_clock(marks)],
    )
    trainer.remove_callback(transformers.PrinterCallback)  # prints a summary where there is no progress bar
    trainer.train()
    return marks


def _clock(marks: list[float]) -> Any:
    """A callback that appends the time in seconds to `marks` when training begins and when a step ends."""

    class Clock(_library("transformers").TrainerCallback):  # type: ignore[misc]
        def on_train_begin(self, *_: Any, **__: Any) -> None:
            marks.append(time.perf_counter())

        def on_step_end(self, *_: Any, **__: Any) -> None:
            marks.append(time.perf_counter())

    return Clock()


def main() -> None:
    """Print the median step time in ms of an untrained lab model, with as many threads as there are cores."""
    threads = joblib.cpu_count()
    seconds = step_seconds(new_model(0), 15, threads)
    print(f"{statistics.median(seconds) * 1000:.0f} ms per step ({len(seconds)} steps, {threads} threads)")


if __name__ == "__main__":
    main()
