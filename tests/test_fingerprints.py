"""Digests of functions: the same for the same computation, another for another, wherever the text stands."""

import subprocess
import sys

import pytest
import torch

from labutils.fingerprints import code_fingerprint, model_fingerprint
from labutils.model import ModelConfig, Transformer

TEXT = """
import math
from functools import partial
import torch

SCALE = 2.0
FORMS = {"direct", "worked", "none"}
WEIGHTS = {"direct": [1, 2], "worked": torch.tensor([0.5, 0.25])}
unused = 1

class Rule:
    power = 2

    def apply(self, x):
        return x ** self.power

def helper(x):
    return x + 1

shifted = partial(helper, 7)

def function(x, offset=3, *, sign=1):
    try:
        x = shifted() + (0 if x in {"a", "b", "c"} else helper(x))
    except ValueError:
        x = -1
    return SCALE * helper(x) + offset * sign + len(FORMS) + WEIGHTS["direct"][0] + Rule().apply(x) + math.pi
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
        ("return x + 1", "return (lambda y: y + 2)(x)"),
        ("SCALE = 2.0", "SCALE = 3.0"),
        ('"none"', '"neither"'),
        ("[1, 2]", "[1, 3]"),
        ("tensor([0.5", "tensor([0.6"),
        ("power = 2", "power = 3"),
        ("x ** self.power", "x * self.power"),
        ("offset=3", "offset=4"),
        ("sign=1", "sign=-1"),
        ("helper, 7", "helper, 8"),
        ("partial(helper", "partial(len"),
        ('"a", "b"', '"a", "B"'),
        ("return SCALE *", "return -SCALE *"),
        ("else helper(x)", "else helper(helper(x))"),
        ("except ValueError", "except TypeError"),
        ("math.pi", "math.e"),
    ],
)
def test_a_change_of_the_function_or_of_what_it_uses_changes_the_digest(old, new):
    assert old in TEXT
    assert digest(TEXT) != digest(TEXT.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("return x + 1", "# why\n    return x + 1"),
        ("import math", "# above\n\nimport math"),
        ("unused = 1", "unused = 2"),
        ("unused = 1", "apply = 2\npower = 5"),  # attributes of these names are read, not the globals
    ],
)
def test_what_the_function_does_not_use_changes_nothing(old, new):
    assert old in TEXT
    assert digest(TEXT) == digest(TEXT.replace(old, new))


def test_a_name_that_is_both_an_attribute_and_a_global_stands_for_the_attribute():
    text = "def function(x):\n    return x.T\n"
    assert digest("T = 1\n" + text) == digest("T = 2\n" + text)


def test_calling_a_function_does_not_change_its_digest():
    names = {"__name__": "notebook"}
    exec(TEXT, names)
    before = code_fingerprint(names["function"])
    for x in range(100):  # enough for the interpreter to specialise the bytecode
        names["function"](x)
    assert code_fingerprint(names["function"]) == before


@pytest.mark.parametrize("hash_seed", ["1", "2", "3"])
def test_another_process_gives_the_same_digest(hash_seed):
    """The order of a set of strings, and addresses, differ between processes."""
    program = f"from test_fingerprints import *\nprint(digest({TEXT!r}))"
    environment = {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": ":".join([*sys.path, "tests"])}
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
    assert process.stdout.strip() == digest(TEXT), process.stderr


def test_objects_of_unknown_kind_are_not_asked():
    class Hostile:
        def __repr__(self):
            raise AssertionError("repr of an unknown object")

        __eq__ = __hash__ = __getattr__ = __repr__

    text = "def function(x):\n    return SCALE\n"
    names = {"__name__": "notebook", "SCALE": Hostile()}
    exec(text, names)
    assert len(code_fingerprint(names["function"])) == 16


def test_a_decorated_function_counts_as_what_it_wraps():
    assert digest(TEXT, torch.no_grad()) == digest(TEXT)
    assert digest(TEXT.replace("+ 1", "+ 2"), torch.no_grad()) != digest(TEXT)


def test_functions_that_call_each_other_and_objects_without_code_have_a_digest():
    text = "def function(n):\n    return other(n)\ndef other(n):\n    return function(n)\n"
    assert digest(text) != digest(text.replace("return other(n)", "return other(n - 1)"))
    assert code_fingerprint(len) == code_fingerprint(len)
    assert code_fingerprint(len, TEXT.strip) != code_fingerprint(torch.nn.ReLU())
    assert code_fingerprint({"rate": 0.1}, [1, 2]) != code_fingerprint({"rate": 0.2}, [1, 2])


def test_a_models_digest_is_of_its_parameters():
    torch.manual_seed(0)
    model = Transformer(ModelConfig(layers=1, width=8, heads=2))
    before = model_fingerprint(model)
    assert model_fingerprint(model) == before
    with torch.no_grad():
        model.head.bias[3] += 1
    assert model_fingerprint(model) != before
