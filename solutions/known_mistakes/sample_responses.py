"""Variants of `sample_responses`. The exercise's stub carries `torch.no_grad`, and so does each variant."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from known_mistakes import Bank
from labutils.model import Transformer
from labutils.task import END, PAD, PROMPT_TOKENS, RESPONSE_TOKENS, response_mask

bank = Bank("sample_responses")

Logits = Callable[[Tensor], Tensor]
Draw = Callable[[Tensor], Tensor]


def _draw(logits: Tensor, temperature: float, generator: torch.Generator | None) -> Tensor:
    """(B,) tokens from (B, 15) logits."""
    return torch.multinomial((logits / temperature).softmax(-1), 1, generator=generator)[:, 0]


def _generate(model: Logits, prompts: Tensor, draw: Draw, steps: int = RESPONSE_TOKENS) -> Tensor:
    """(B, steps): the right loop around a model and a way to draw tokens (B,) from logits (B, 15)."""
    sequences, ended = prompts, torch.zeros(len(prompts), dtype=torch.bool)
    for _ in range(steps):
        token = draw(model(sequences)[:, -1]).masked_fill(ended, PAD)
        sequences = torch.cat([sequences, token[:, None]], 1)
        ended = ended | (token == END)
    return sequences[:, PROMPT_TOKENS:]


@bank.mistake("the most likely token is taken, none is drawn")
@torch.no_grad()
def greedy(
    model: Transformer, prompts: Tensor, temperature: float = 1.0, generator: torch.Generator | None = None
) -> Tensor:
    return _generate(model, prompts, lambda logits: logits.argmax(-1))


@bank.mistake("the logits are multiplied by the temperature, not divided")
@torch.no_grad()
def multiplied(
    model: Transformer, prompts: Tensor, temperature: float = 1.0, generator: torch.Generator | None = None
) -> Tensor:
    return _generate(model, prompts, lambda logits: _draw(logits * temperature, 1.0, generator))


@bank.mistake("the temperature has no effect: it must divide the logits before the softmax")
@torch.no_grad()
def after_softmax(
    model: Transformer, prompts: Tensor, temperature: float = 1.0, generator: torch.Generator | None = None
) -> Tensor:
    def draw(logits: Tensor) -> Tensor:
        return torch.multinomial(logits.softmax(-1) / temperature, 1, generator=generator)[:, 0]

    return _generate(model, prompts, draw)


@bank.mistake("the softmax is taken of probabilities divided by the temperature, not of logits")
@torch.no_grad()
def softmax_twice(
    model: Transformer, prompts: Tensor, temperature: float = 1.0, generator: torch.Generator | None = None
) -> Tensor:
    return _generate(model, prompts, lambda logits: _draw(logits.softmax(-1), temperature, generator))


@bank.mistake("the logits, shifted to be positive, are used as probabilities: the softmax is missing")
@torch.no_grad()
def no_softmax(
    model: Transformer, prompts: Tensor, temperature: float = 1.0, generator: torch.Generator | None = None
) -> Tensor:
    def draw(logits: Tensor) -> Tensor:
        logits = logits / temperature
        positive = logits - logits.amin(-1, keepdim=True) + 1e-6
        return torch.multinomial(positive, 1, generator=generator)[:, 0]

    return _generate(model, prompts, draw)


@bank.mistake("the softmax runs over the batch, not over the tokens of the vocabulary")
@torch.no_grad()
def over_batch(
    model: Transformer, prompts: Tensor, temperature: float = 1.0, generator: torch.Generator | None = None
) -> Tensor:
    def draw(logits: Tensor) -> Tensor:
        return torch.multinomial((logits / temperature).softmax(0), 1, generator=generator)[:, 0]

    return _generate(model, prompts, draw)


@bank.mistake("all tokens are equally likely: the model is not asked")
@torch.no_grad()
def uniform(
    model: Transformer, prompts: Tensor, temperature: float = 1.0, generator: torch.Generator | None = None
) -> Tensor:
    return _generate(model, prompts, lambda logits: _draw(torch.zeros_like(logits), 1.0, generator))


@bank.mistake("the generator is ignored")
@torch.no_grad()
def generator_ignored(
    model: Transformer, prompts: Tensor, temperature: float = 1.0, generator: torch.Generator | None = None
) -> Tensor:
    return _generate(model, prompts, lambda logits: _draw(logits, temperature, None))


@bank.mistake("a new generator with a fixed seed is made in every call, so that every call draws the same")
@torch.no_grad()
def fixed_seed(
    model: Transformer, prompts: Tensor, temperature: float = 1.0, generator: torch.Generator | None = None
) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return _generate(model, prompts, lambda logits: _draw(logits, temperature, generator))


@bank.mistake("PyTorch's global seed is set in every call")
@torch.no_grad()
def global_seed(
    model: Transformer, prompts: Tensor, temperature: float = 1.0, generator: torch.Generator | None = None
) -> Tensor:
    torch.manual_seed(0)
    return _generate(model, prompts, lambda logits: _draw(logits, temperature, generator))


@bank.mistake("one random number serves all responses of the batch")
@torch.no_grad()
def one_number(
    model: Transformer, prompts: Tensor, temperature: float = 1.0, generator: torch.Generator | None = None
) -> Tensor:
    def draw(logits: Tensor) -> Tensor:
        cumulative = (logits / temperature).softmax(-1).cumsum(-1)
        number = torch.rand(1, 1, generator=generator)
        return (cumulative < number).sum(-1).clamp(max=logits.shape[-1] - 1)

    return _generate(model, prompts, draw)


@bank.mistake("the generator is seeded anew for every response, so that equal prompts get equal responses")
@torch.no_grad()
def seeded_per_response(
    model: Transformer, prompts: Tensor, temperature: float = 1.0, generator: torch.Generator | None = None
) -> Tensor:
    rows = []
    for prompt in prompts.split(1):
        own = torch.Generator().manual_seed(generator.initial_seed() if generator else 0)
        rows.append(_generate(model, prompt, partial(_draw, temperature=temperature, generator=own)))
    return torch.cat(rows)


@bank.mistake("one random number serves all tokens of a response")
@torch.no_grad()
def one_number_per_response(
    model: Transformer, prompts: Tensor, temperature: float = 1.0, generator: torch.Generator | None = None
) -> Tensor:
    number = torch.rand(len(prompts), 1, generator=generator)

    def draw(logits: Tensor) -> Tensor:
        cumulative = (logits / temperature).softmax(-1).cumsum(-1)
        return (cumulative < number).sum(-1).clamp(max=logits.shape[-1] - 1)

    return _generate(model, prompts, draw)


@bank.mistake("every token is drawn from the first prompt's probabilities")
@torch.no_grad()
def first_row(
    model: Transformer, prompts: Tensor, temperature: float = 1.0, generator: torch.Generator | None = None
) -> Tensor:
    return _generate(model, prompts, lambda logits: _draw(logits[:1].expand_as(logits), temperature, generator))


@bank.mistake("only the most likely tokens, 0.9 in sum, can be drawn (top-p)")
@torch.no_grad()
def top_p(
    model: Transformer, prompts: Tensor, temperature: float = 1.0, generator: torch.Generator | None = None
) -> Tensor:
    def draw(logits: Tensor) -> Tensor:
        sorted_probabilities, order = (logits / temperature).softmax(-1).sort(-1, descending=True)
        before = sorted_probabilities.cumsum(-1) - sorted_probabilities
        kept = sorted_probabilities.masked_fill(before >= 0.9, 0.0)
        return order.gather(-1, torch.multinomial(kept, 1, generator=generator))[:, 0]

    return _generate(model, prompts, draw)


@bank.mistake("only the five most likely tokens can be drawn (top-k)")
@torch.no_grad()
def top_k(
    model: Transformer, prompts: Tensor, temperature: float = 1.0, generator: torch.Generator | None = None
) -> Tensor:
    def draw(logits: Tensor) -> Tensor:
        values, tokens = logits.topk(5, -1)
        return tokens.gather(-1, _draw(values, temperature, generator)[:, None])[:, 0]

    return _generate(model, prompts, draw)


@bank.mistake("the padding token can never be drawn before `<end>`")
@torch.no_grad()
def no_padding_drawn(
    model: Transformer, prompts: Tensor, temperature: float = 1.0, generator: torch.Generator | None = None
) -> Tensor:
    def draw(logits: Tensor) -> Tensor:
        allowed = logits.clone()
        allowed[:, PAD] = -torch.inf
        return _draw(allowed, temperature, generator)

    return _generate(model, prompts, draw)


@bank.mistake("`<end>` can never be drawn")
@torch.no_grad()
def no_end_drawn(
    model: Transformer, prompts: Tensor, temperature: float = 1.0, generator: torch.Generator | None = None
) -> Tensor:
    def draw(logits: Tensor) -> Tensor:
        allowed = logits.clone()
        allowed[:, END] = -torch.inf
        return _draw(allowed, temperature, generator)

    return _generate(model, prompts, draw)


@bank.mistake("responses go on after `<end>`")
@torch.no_grad()
def goes_on(
    model: Transformer, prompts: Tensor, temperature: float = 1.0, generator: torch.Generator | None = None
) -> Tensor:
    sequences = prompts
    for _ in range(RESPONSE_TOKENS):
        token = _draw(model(sequences)[:, -1], temperature, generator)
        sequences = torch.cat([sequences, token[:, None]], 1)
    return sequences[:, PROMPT_TOKENS:]


@bank.mistake("the padding token ends a response instead of `<end>`")
@torch.no_grad()
def ends_at_padding(
    model: Transformer, prompts: Tensor, temperature: float = 1.0, generator: torch.Generator | None = None
) -> Tensor:
    sequences, ended = prompts, torch.zeros(len(prompts), dtype=torch.bool)
    for _ in range(RESPONSE_TOKENS):
        token = _draw(model(sequences)[:, -1], temperature, generator).masked_fill(ended, PAD)
        sequences = torch.cat([sequences, token[:, None]], 1)
        ended = ended | (token == PAD)
    return sequences[:, PROMPT_TOKENS:]


@bank.mistake("a padding token ends a response as `<end>` does")
@torch.no_grad()
def ends_at_both(
    model: Transformer, prompts: Tensor, temperature: float = 1.0, generator: torch.Generator | None = None
) -> Tensor:
    sequences, ended = prompts, torch.zeros(len(prompts), dtype=torch.bool)
    for _ in range(RESPONSE_TOKENS):
        token = _draw(model(sequences)[:, -1], temperature, generator).masked_fill(ended, PAD)
        sequences = torch.cat([sequences, token[:, None]], 1)
        ended = ended | (token == END) | (token == PAD)
    return sequences[:, PROMPT_TOKENS:]


@bank.mistake("`<end>` itself is replaced by padding")
@torch.no_grad()
def end_replaced(
    model: Transformer, prompts: Tensor, temperature: float = 1.0, generator: torch.Generator | None = None
) -> Tensor:
    sequences, ended = prompts, torch.zeros(len(prompts), dtype=torch.bool)
    for _ in range(RESPONSE_TOKENS):
        token = _draw(model(sequences)[:, -1], temperature, generator)
        ended = ended | (token == END)
        sequences = torch.cat([sequences, token.masked_fill(ended, PAD)[:, None]], 1)
    return sequences[:, PROMPT_TOKENS:]


@bank.mistake("a response is filled up with `<end>` instead of padding")
@torch.no_grad()
def filled_with_end(
    model: Transformer, prompts: Tensor, temperature: float = 1.0, generator: torch.Generator | None = None
) -> Tensor:
    sequences, ended = prompts, torch.zeros(len(prompts), dtype=torch.bool)
    for _ in range(RESPONSE_TOKENS):
        token = _draw(model(sequences)[:, -1], temperature, generator).masked_fill(ended, END)
        sequences = torch.cat([sequences, token[:, None]], 1)
        ended = ended | (token == END)
    return sequences[:, PROMPT_TOKENS:]


@bank.mistake("the first `<end>` in the batch stops all responses")
@torch.no_grad()
def all_stopped(
    model: Transformer, prompts: Tensor, temperature: float = 1.0, generator: torch.Generator | None = None
) -> Tensor:
    responses = torch.full((len(prompts), RESPONSE_TOKENS), PAD)
    for t in range(RESPONSE_TOKENS):
        logits = model(torch.cat([prompts, responses[:, :t]], 1))[:, -1]
        responses[:, t] = _draw(logits, temperature, generator)
        if (responses[:, t] == END).any():
            break
    return responses


@bank.mistake("a response that has not ended gets `<end>` as its last token")
@torch.no_grad()
def end_forced(
    model: Transformer, prompts: Tensor, temperature: float = 1.0, generator: torch.Generator | None = None
) -> Tensor:
    responses = _generate(model, prompts, lambda logits: _draw(logits, temperature, generator))
    responses[response_mask(responses)[:, -1], -1] = END
    return responses


@bank.mistake("the result is narrower than 12 tokens when all responses have ended")
@torch.no_grad()
def narrow(
    model: Transformer, prompts: Tensor, temperature: float = 1.0, generator: torch.Generator | None = None
) -> Tensor:
    sequences, ended = prompts, torch.zeros(len(prompts), dtype=torch.bool)
    for _ in range(RESPONSE_TOKENS):
        token = _draw(model(sequences)[:, -1], temperature, generator).masked_fill(ended, PAD)
        sequences = torch.cat([sequences, token[:, None]], 1)
        ended = ended | (token == END)
        if ended.all():
            break
    return sequences[:, PROMPT_TOKENS:]


@bank.mistake("11 tokens are drawn, not 12")
@torch.no_grad()
def eleven(
    model: Transformer, prompts: Tensor, temperature: float = 1.0, generator: torch.Generator | None = None
) -> Tensor:
    return _generate(model, prompts, lambda logits: _draw(logits, temperature, generator), RESPONSE_TOKENS - 1)


@bank.mistake("13 tokens are drawn, not 12")
@torch.no_grad()
def thirteen(
    model: Transformer, prompts: Tensor, temperature: float = 1.0, generator: torch.Generator | None = None
) -> Tensor:
    return _generate(model, prompts, lambda logits: _draw(logits, temperature, generator), RESPONSE_TOKENS + 1)


@bank.mistake("the prompt is returned with the response")
@torch.no_grad()
def with_prompt(
    model: Transformer, prompts: Tensor, temperature: float = 1.0, generator: torch.Generator | None = None
) -> Tensor:
    responses = _generate(model, prompts, lambda logits: _draw(logits, temperature, generator))
    return torch.cat([prompts, responses], 1)


@bank.mistake("the last 12 positions but one are returned: the slice is one place off")
@torch.no_grad()
def slice_off_by_one(
    model: Transformer, prompts: Tensor, temperature: float = 1.0, generator: torch.Generator | None = None
) -> Tensor:
    responses = _generate(model, prompts, lambda logits: _draw(logits, temperature, generator))
    return torch.cat([prompts, responses], 1)[:, PROMPT_TOKENS - 1 : -1]


@bank.mistake("the tokens drawn are not fed back: the model sees the prompt only")
@torch.no_grad()
def not_fed_back(
    model: Transformer, prompts: Tensor, temperature: float = 1.0, generator: torch.Generator | None = None
) -> Tensor:
    logits = model(prompts)[:, -1]
    return _generate(model, prompts, lambda _: _draw(logits, temperature, generator))


@bank.mistake("the model sees the last 9 tokens only")
@torch.no_grad()
def last_nine(
    model: Transformer, prompts: Tensor, temperature: float = 1.0, generator: torch.Generator | None = None
) -> Tensor:
    sequences, ended = prompts, torch.zeros(len(prompts), dtype=torch.bool)
    for _ in range(RESPONSE_TOKENS):
        logits = model(sequences[:, -PROMPT_TOKENS:])[:, -1]
        token = _draw(logits, temperature, generator).masked_fill(ended, PAD)
        sequences = torch.cat([sequences, token[:, None]], 1)
        ended = ended | (token == END)
    return sequences[:, PROMPT_TOKENS:]


@bank.mistake("the logits come from the position before the last")
@torch.no_grad()
def position_before(
    model: Transformer, prompts: Tensor, temperature: float = 1.0, generator: torch.Generator | None = None
) -> Tensor:
    def without_last(sequences: Tensor) -> Tensor:
        return model(sequences)[:, :-1]

    return _generate(without_last, prompts, lambda logits: _draw(logits, temperature, generator))


@bank.mistake("the tokens are floating-point numbers, not whole numbers")
@torch.no_grad()
def floating_point(
    model: Transformer, prompts: Tensor, temperature: float = 1.0, generator: torch.Generator | None = None
) -> Tensor:
    return _generate(model, prompts, lambda logits: _draw(logits, temperature, generator)).float()


@bank.mistake("the responses are written over the prompts that were passed in")
@torch.no_grad()
def changed_prompts(
    model: Transformer, prompts: Tensor, temperature: float = 1.0, generator: torch.Generator | None = None
) -> Tensor:
    responses = _generate(model, prompts, lambda logits: _draw(logits, temperature, generator))
    prompts.copy_(responses[:, :PROMPT_TOKENS])
    return responses


@bank.right("a row of 21 tokens that fills up, full forward passes")
@torch.no_grad()
def full_width(
    model: Transformer, prompts: Tensor, temperature: float = 1.0, generator: torch.Generator | None = None
) -> Tensor:
    width = PROMPT_TOKENS + RESPONSE_TOKENS
    tokens = torch.full((len(prompts), width), PAD)
    tokens[:, :PROMPT_TOKENS] = prompts
    for t in range(PROMPT_TOKENS, width):
        running = ~(tokens[:, PROMPT_TOKENS:] == END).any(1)
        drawn = _draw(model(tokens)[:, t - 1], temperature, generator)
        tokens[running, t] = drawn[running]
    return tokens[:, PROMPT_TOKENS:]


@bank.right("tokens after `<end>` are drawn and then overwritten")
@torch.no_grad()
def cleaned_up(
    model: Transformer, prompts: Tensor, temperature: float = 1.0, generator: torch.Generator | None = None
) -> Tensor:
    sequences = prompts
    for _ in range(RESPONSE_TOKENS):
        probabilities = torch.exp((model(sequences)[:, -1] / temperature).log_softmax(-1))
        sequences = torch.cat([sequences, torch.multinomial(probabilities, 1, generator=generator)], 1)
    responses = sequences[:, PROMPT_TOKENS:]
    return torch.where(response_mask(responses), responses, PAD)


@bank.right("Gumbel noise and argmax")
@torch.no_grad()
def gumbel(
    model: Transformer, prompts: Tensor, temperature: float = 1.0, generator: torch.Generator | None = None
) -> Tensor:
    def draw(logits: Tensor) -> Tensor:
        noise = -torch.empty_like(logits).exponential_(generator=generator).log()
        return (logits / temperature + noise).argmax(-1)

    return _generate(model, prompts, draw)


@bank.right("the inverse of the cumulative distribution")
@torch.no_grad()
def inverse_cumulative(
    model: Transformer, prompts: Tensor, temperature: float = 1.0, generator: torch.Generator | None = None
) -> Tensor:
    def draw(logits: Tensor) -> Tensor:
        cumulative = (logits / temperature).softmax(-1).double().cumsum(-1)
        numbers = torch.rand(len(logits), 1, dtype=torch.float64, generator=generator) * cumulative[:, -1:]
        return torch.searchsorted(cumulative, numbers, right=True)[:, 0].clamp(max=logits.shape[-1] - 1)

    return _generate(model, prompts, draw)


@bank.right("one response at a time, which stops at its `<end>`")
@torch.no_grad()
def one_at_a_time(
    model: Transformer, prompts: Tensor, temperature: float = 1.0, generator: torch.Generator | None = None
) -> Tensor:
    rows = []
    for prompt in prompts.tolist():
        response: list[int] = []
        while len(response) < RESPONSE_TOKENS and END not in response:
            logits = model(torch.tensor([prompt + response]))[:, -1]
            response.append(int(_draw(logits, temperature, generator)))
        rows.append(response + [PAD] * (RESPONSE_TOKENS - len(response)))
    return torch.tensor(rows)


@bank.right("only the responses that go on are computed further; it stops when all have ended")
@torch.no_grad()
def only_running(
    model: Transformer, prompts: Tensor, temperature: float = 1.0, generator: torch.Generator | None = None
) -> Tensor:
    responses = torch.full((len(prompts), RESPONSE_TOKENS), PAD)
    running = torch.arange(len(prompts))
    for t in range(RESPONSE_TOKENS):
        logits = model(torch.cat([prompts[running], responses[running, :t]], 1))[:, -1]
        responses[running, t] = _draw(logits, temperature, generator)
        running = running[responses[running, t] != END]
        if len(running) == 0:
            break
    return responses


@bank.right("probabilities to the power 1 / temperature")
@torch.no_grad()
def power(
    model: Transformer, prompts: Tensor, temperature: float = 1.0, generator: torch.Generator | None = None
) -> Tensor:
    def draw(logits: Tensor) -> Tensor:
        probabilities = logits.double().softmax(-1)
        powers = (probabilities / probabilities.amax(-1, keepdim=True)) ** (1 / temperature)
        return torch.multinomial(powers / powers.sum(-1, keepdim=True), 1, generator=generator)[:, 0]

    return _generate(model, prompts, draw)
