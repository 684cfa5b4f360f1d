"""One model's responses to a problem, and the probability of each next token along the two correct responses."""

from __future__ import annotations

import ipywidgets
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from labutils import rollout
from labutils.model import Transformer
from labutils.plots import Picture
from labutils.task import PROMPT_TOKENS, TOKEN_TEXT, Problems, decode, encode_prompts, encode_responses, response_mask
from labutils.widgets.display import Explorer, Shown, TextTable, digits_field, in_words, read_digits, temperature_slider

SAMPLES = 8
SMALLEST_WRITTEN = 0.005  # probabilities below it leave their cell without a number


class ResponseExplorer(Explorer):
    """See `response_explorer`."""

    def __init__(self, model: Transformer):
        self.model = model
        self.seed = 0
        self.digits, self.temperature = digits_field("471"), temperature_slider()
        self.resample = ipywidgets.Button(description="Resample")
        super().__init__([self.digits, self.temperature, self.resample])
        self.refresh_on(self.digits, self.temperature)
        self.resample.on_click(self._sample_again)

    def draw(self) -> list[Shown]:
        """Sampled responses, and the heat maps."""
        problem, temperature = read_digits(self.digits.value), self.temperature.value
        generator = torch.Generator().manual_seed(self.seed)
        responses = rollout.generate(self.model, encode_prompts(problem), SAMPLES, temperature, generator)
        rows = [(str(i), *words) for i, words in enumerate(in_words(problem, responses), 1)]
        table = TextTable(("sample", "response", "form", "answer"), rows)
        return [table, probability_picture(self.model, problem, temperature)]

    def _sample_again(self, _: ipywidgets.Button) -> None:
        self.seed += 1
        self.refresh()


def response_explorer(model: Transformer) -> ResponseExplorer:
    """Type a problem, slide the temperature, and see sampled responses and the probability of each next token.

    The samples come from softmax(logits / temperature), the probabilities are exact: one row for each token of the
    correct direct and of the correct worked response, given everything before it, one column for each of the tokens.
    """
    return ResponseExplorer(model)


@torch.no_grad()
def next_token_probabilities(model: Transformer, problem: Problems, worked: bool, temperature: float) -> Tensor:
    """(R, 15): the probability of every token at each place of the problem's correct response; R its length."""
    response = encode_responses(problem, torch.tensor([worked]))
    logits = model(torch.cat([encode_prompts(problem), response], 1)[:, :-1])[0, PROMPT_TOKENS - 1 :]
    return (logits / temperature).softmax(-1)[response_mask(response)[0]]


def probability_picture(model: Transformer, problem: Problems, temperature: float) -> Picture:
    """Two heat maps, of the direct and of the worked response."""
    count = int(problem.lengths[0])
    height = 1.1 + 0.29 * (count + 4)
    figure = Figure(figsize=(10.4, height))
    figure.subplots_adjust(left=0.045, right=0.985, top=1 - 0.35 / height, bottom=0.5 / height, wspace=0.12)
    described = []
    for index, worked in enumerate((False, True)):
        response = encode_responses(problem, torch.tensor([worked]))[0]
        probabilities = next_token_probabilities(model, problem, worked, temperature)
        chosen = response[: len(probabilities)]
        whole = probabilities.gather(1, chosen[:, None]).prod().item()
        form = "worked" if worked else "direct"
        axis = figure.add_subplot(1, 2, index + 1)
        _heat_map(axis, probabilities, chosen, count + 4)
        axis.set_title(f"{form}:  {decode(response)}   (probability {whole:.3g})", fontsize=10, loc="left")
        described.append(f"the {form} response {decode(response)} has probability {whole:.3g}")
    prompt = decode(encode_prompts(problem)[0])
    alt = (
        "Two heat maps of the probability of each next token, a row for each token of the correct response to "
        f"{prompt} and a column for each of the 15 tokens, at temperature {temperature:.1f}; {'; '.join(described)}."
    )
    return Picture(figure, alt)


def _heat_map(axis: Axes, probabilities: Tensor, chosen: Tensor, rows: int) -> None:
    """The probabilities (R, 15) as cells, the response's own tokens (R,) framed; room for `rows` rows."""
    axis.imshow(probabilities.numpy(), cmap="Blues", vmin=0, vmax=1, aspect="auto")
    for row, column in (probabilities >= SMALLEST_WRITTEN).nonzero().tolist():
        value = probabilities[row, column].item()
        colour = "white" if value > 0.6 else "black"
        axis.text(column, row, f"{value:.2f}", ha="center", va="center", fontsize=8, color=colour)
    for row, column in enumerate(chosen.tolist()):
        axis.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, fill=False, edgecolor="#D55E00", linewidth=1.8))
    axis.set_xticks(range(len(TOKEN_TEXT)), labels=TOKEN_TEXT, fontsize=7.5)
    axis.set_yticks(range(len(chosen)), labels=[str(i + 1) for i in range(len(chosen))], fontsize=9)
    axis.set_ylim(rows - 0.5, -0.6)
    axis.set_xlabel("next token (framed: the correct response's)", fontsize=9)
    axis.set_ylabel("position in the response", fontsize=9)
