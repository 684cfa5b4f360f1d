"""Makes docs/part1.png, part2.png and part3.png: the solved, executed notebooks in JupyterLab.

Run by hand from the checkout's folder: PYTHONPATH=solutions:tests python docs/screenshots.py
"""

import shutil
import tempfile
from pathlib import Path

import build
from browser import NotebookPage, jupyter_server, launch_chromium
from playwright.sync_api import sync_playwright

DOCS = Path(__file__).parent
WIDTH, HEIGHT = 1200, 900
LARGEST = 300_000  # bytes
# The cell that stands at the top of each picture.
PLACES = dict(zip(build.NAMES[:3], ("explorer", "ten-runs", "response-tree"), strict=True))


def main() -> None:
    """Write the pictures. Raises `ValueError` for a notebook without outputs, or a picture that is too large."""
    with tempfile.TemporaryDirectory() as folder:
        root, state = Path(folder, "notebooks"), Path(folder, "state")
        state.mkdir()
        shutil.copytree(build.solved_path(build.NAMES[0]).parent, root)
        with jupyter_server(root, state) as address, sync_playwright() as playwright:
            browser = launch_chromium(playwright)
            for name, cell_id in PLACES.items():
                page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
                notebook = NotebookPage(page, address, root / f"{name}.ipynb")
                page.keyboard.press("Control+B")  # hides the list of files
                if notebook.output(cell_id).locator("img").count() == 0:
                    raise ValueError(f"{name} has not been executed: {cell_id} shows no picture; run `make notebooks`")
                notebook.cell(cell_id).evaluate("cell => cell.scrollIntoView()")
                path = DOCS / f"{name[:5]}.png"
                page.screenshot(path=path)
                if path.stat().st_size > LARGEST:
                    raise ValueError(f"{path} has {path.stat().st_size} bytes; at most {LARGEST} are wanted")
                page.close()
            browser.close()


if __name__ == "__main__":
    main()
