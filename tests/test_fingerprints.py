"""Digests of functions: the same for the same computation, another for another, wherever the text stands."""

import pytest
import torch

from labutils.fingerprints import code_fingerprint, model_fingerprint
from labutils.model import ModelConfig, Transformer

TEXT = """
SCALE = 2.0

def helper(x):
    return x + 1

def function(x, offset=3):
    return SCALE * helper(x) + offset
"""


def digest(text, decorate=lambda function: function):
    names = {"__name__": "notebook"}
    exec(text, names)
    return code_fingerprint(decorate(names["function"]))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("return x + 1", "return x + 2"),
        ("return x + 1", "return x - 1"),
        ("SCALE = 2.0", "SCALE = 3.0"),
        ("offset=3", "offset=4"),
        ("return SCALE *", "return -SCALE *"),
        ("helper(x) + offset", "helper(helper(x)) + offset"),
        ("return x + 1", "return (lambda y: y + 2)(x)"),
    ],
)
def test_a_change_of_the_function_or_of_what_it_calls_changes_the_digest(old, new):
    assert old in TEXT
    assert digest(TEXT) != digest(TEXT.replace(old, new))


def test_comments_and_places_change_nothing():
    assert digest(TEXT) == digest("# above\n\n" + TEXT.replace("return x + 1", "# why\n    return x + 1"))


def test_a_decorated_function_counts_as_what_it_wraps():
    assert digest(TEXT, torch.no_grad()) == digest(TEXT)
    assert digest(TEXT.replace("+ 1", "+ 2"), torch.no_grad()) != digest(TEXT)


def test_functions_that_call_each_other_and_objects_without_code_have_a_digest():
    text = "def function(n):\n    return other(n)\ndef other(n):\n    return function(n)\n"
    assert digest(text) != digest(text.replace("return other(n)", "return other(n - 1)"))
    assert code_fingerprint(len) == code_fingerprint(len)
    assert code_fingerprint(len, TEXT.strip) != code_fingerprint(torch.nn.ReLU())


def test_a_models_digest_is_of_its_parameters():
    torch.manual_seed(0)
    model = Transformer(ModelConfig(layers=1, width=8, heads=2))
    before = model_fingerprint(model)
    assert model_fingerprint(model) == before
    with torch.no_grad():
        model.head.bias[3] += 1
    assert model_fingerprint(model) != before
