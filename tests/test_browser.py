"""The notebooks in a real browser, as a student sees them."""

import re
import shutil

import build
import nbformat
import pytest

pytest.importorskip("playwright", reason="needs Playwright, which drives the browser")

from browser import CHROMIUM, NotebookPage, jupyter_server, launch_chromium
from playwright.sync_api import expect, sync_playwright

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium or Google Chrome")

PART_1, PART_2, PART_3 = build.NAMES[:3]
STATE_NOT_MULTIPLIED = """\
def running_states(digits):
    states, state = [], 0
    for digit in digits:
        state = (state + digit) % 10
        states.append(state)
    return states
"""
# Notes, from now on, what is seen of the progress bar and of the picture while the cell runs.
NOTE_PROGRESS = """cell => {
    window.widths = new Set();
    window.pictures = new Set();
    const look = () => {
        if (cell.querySelector(".jp-InputPrompt").textContent !== "[*]:") return;
        for (const bar of cell.querySelectorAll(".progress-bar")) widths.add(bar.style.width);
        for (const picture of cell.querySelectorAll("img[alt^='Three panels against the training step']"))
            pictures.add(picture.src);
    };
    new MutationObserver(look).observe(cell, {subtree: true, childList: true, attributes: true});
}"""


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("notebooks")


@pytest.fixture(scope="module")
def address(root, tmp_path_factory):
    with jupyter_server(root, tmp_path_factory.mktemp("jupyter"), LAB16_PROFILE="quick") as address:
        yield address


@pytest.fixture(scope="module")
def chromium():
    with sync_playwright() as playwright:
        browser = launch_chromium(playwright)
        yield browser
        browser.close()


@pytest.fixture
def page(chromium):
    with chromium.new_page(viewport={"width": 1400, "height": 1000}) as page:
        yield page


def test_part_2_trains_before_the_students_eyes(page, address, root):
    nbformat.write(build.solved_notebook(PART_2), root / f"{PART_2}.ipynb")
    notebook = NotebookPage(page, address, root / f"{PART_2}.ipynb")
    notebook.cell("ten-runs").evaluate(NOTE_PROGRESS)
    notebook.run_all()
    notebook.wait_for("live-bench")

    assert page.evaluate("widths.size") >= 3, "the progress bar did not move"
    assert page.evaluate("pictures.size") >= 3, "the learning curves were not drawn anew twice while the runs trained"
    expect(notebook.output("table-part2")).to_contain_text("Part 2: reinforcement learning, five estimators")
    expect(notebook.output("table-part2")).to_contain_text(re.compile(r"\d+ numbers lie (in|outside) their bands"))
    expect(page.locator("[data-mime-type='application/vnd.jupyter.stderr']")).to_have_count(0)
    expect(page.get_by_text("✗ failed")).to_have_count(0)  # in any check

    bench = notebook.output("advantage-bench")
    fifth = bench.locator("table tr").nth(5)
    expect(fifth).to_contain_text("+0.857")  # RLOO: 1 - 1/7
    bench.get_by_label("response 5 is right").uncheck()
    expect(fifth).to_contain_text("-0.143")  # RLOO: 0 - 1/7
    expect(bench.locator("table tr").nth(1)).to_contain_text("+1.000")

    bench = notebook.output("live-bench")
    bench.get_by_role("button", name="Train").click()
    expect(bench.locator("table tr").nth(1)).to_contain_text(re.compile(r"training\s*\d+\s*0\.\d\d\s*0\.\d\d"))
    bench.get_by_role("button", name="Stop").click()
    expect(bench).to_contain_text("Try 1 stopped after")
    bench.get_by_role("button", name="Reset").click()
    expect(bench).to_contain_text("Choose the settings and press Train.")
    expect(bench.locator("table tr")).to_have_count(1)


def test_a_check_says_what_is_wrong_until_it_is_right(page, address, root):
    shutil.copy(build.student_path(PART_1), root)
    notebook = NotebookPage(page, address, root / f"{PART_1}.ipynb")
    notebook.run("setup")
    notebook.run("running-states")
    expect(notebook.run("check-running-states")).to_contain_text("running_states is not written yet")

    notebook.write("running-states", STATE_NOT_MULTIPLIED)
    notebook.run("running-states")
    report = notebook.run("check-running-states")
    expect(report).to_contain_text("the state is not multiplied by 3: got 1, expected 9")
    expect(report).to_contain_text("expected = [4, 9, 8]")
    expect(report).to_contain_text("got = [4, 1, 2]")

    notebook.write("running-states", build.function_source("running_states", solved=True))
    notebook.run("running-states")
    expect(notebook.run("check-running-states")).to_contain_text("running_states: ✓ passed, 5 of 5 cases")


def test_a_widget_shows_and_answers_in_notebook_7_too(page, address, root):
    shutil.copy(build.student_path(PART_3), root)
    notebook = NotebookPage(page, address, root / f"{PART_3}.ipynb", "notebooks")
    notebook.run("setup")
    tree = notebook.run("response-tree")
    picture = tree.locator("img")
    before = picture.get_attribute("src")
    tree.get_by_label("digits (then Enter)").fill("4 7")
    tree.get_by_label("digits (then Enter)").press("Enter")
    expect(picture).not_to_have_attribute("src", before)
