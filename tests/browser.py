"""A Jupyter server with its settings in a folder of its own, and notebooks in a browser, their cells found by id."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import nbformat
from playwright.sync_api import Browser, Locator, Page, Playwright, expect

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
CHROMIUM_OPTIONS = [
    "--no-sandbox",  # which root cannot use
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
SECONDS = 180  # that anything may take
SETTINGS = {
    # All cells are in the page, not only those in sight.
    "@jupyterlab/notebook-extension/tracker": {"windowingMode": "none"},
    "@jupyterlab/apputils-extension/notification": {"checkForUpdates": False, "fetchNews": "false"},
}


@contextmanager
def jupyter_server(root: Path, state: Path, **environment: str) -> Iterator[str]:
    """Serve the folder `root` with JupyterLab and Notebook 7 inside the block; gives the address.

    state: an empty folder for settings, logs and what Jupyter notes while it runs.
    """
    for plugin, values in SETTINGS.items():
        path = state / "settings" / f"{plugin}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(values))
    folders = {
        "JUPYTER_CONFIG_DIR": "config",
        "JUPYTER_DATA_DIR": "data",
        "JUPYTER_RUNTIME_DIR": "runtime",
        "JUPYTERLAB_SETTINGS_DIR": "settings",
        "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
        "IPYTHONDIR": "ipython",
    }
    folders = {name: str(state / folder) for name, folder in folders.items()}
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ServerApp.ip=127.0.0.1",
               "--ServerApp.port=0", "--IdentityProvider.token=", f"--ServerApp.root_dir={root}"]  # fmt: skip
    with open(state / "server.log", "wb") as log:
        server = subprocess.Popen(
            command, env={**os.environ, **folders, **environment}, stdout=log, stderr=subprocess.STDOUT
        )
        try:
            yield _address(server, state)
        finally:
            server.terminate()  # it ends its kernels first
            server.wait(SECONDS)


def _address(server: subprocess.Popen[bytes], state: Path) -> str:
    """Where the server listens, once it does; it tells in a file."""
    end = time.monotonic() + SECONDS
    while server.poll() is None and time.monotonic() < end:
        for path in (state / "runtime").glob("jpserver-*.json"):
            return str(json.loads(path.read_text())["url"])
        time.sleep(0.1)
    raise RuntimeError(f"JupyterLab did not start: {(state / 'server.log').read_text()}")


def launch_chromium(playwright: Playwright) -> Browser:
    """The Chromium of this machine, without a window."""
    return playwright.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_OPTIONS)


class NotebookPage:
    """A notebook, opened in a browser.

    address: the server's. path: the notebook's file, in the folder that is served. front_end: "lab/tree" for
    JupyterLab or "notebooks" for Notebook 7.
    """

    def __init__(self, page: Page, address: str, path: Path, front_end: str = "lab/tree"):
        self.page = page
        self._places = {cell.id: place for place, cell in enumerate(nbformat.read(path, as_version=4).cells)}
        page.set_default_timeout(1000 * SECONDS)
        expect.set_options(timeout=1000 * SECONDS)
        # A wish to run a cell is lost before the page has a kernel, with which it talks through a web socket.
        with page.expect_websocket(lambda socket: "/channels" in socket.url):
            page.goto(f"{address}{front_end}/{path.name}?reset")  # without what was open before
        expect(page.locator(".jp-Notebook .jp-Cell")).to_have_count(len(self._places))
        expect(page.locator(".jp-Notebook-ExecutionIndicator[data-status=idle]").first).to_be_visible()

    def cell(self, cell_id: str) -> Locator:
        """The cell."""
        return self.page.locator(".jp-Notebook .jp-Cell").nth(self._places[cell_id])

    def output(self, cell_id: str) -> Locator:
        """What the code cell shows."""
        return self.cell(cell_id).locator(".jp-Cell-outputArea")

    def write(self, cell_id: str, source: str) -> None:
        """Type the source into the code cell, in place of what stands there."""
        self.cell(cell_id).locator(".cm-content").click()
        self.page.keyboard.press("Control+A")
        self.page.keyboard.insert_text(source)

    def run(self, cell_id: str) -> Locator:
        """Run the code cell and wait for its end; gives what it shows."""
        cell = self.cell(cell_id)
        before = cell.locator(".jp-InputPrompt").inner_text()
        cell.locator(".jp-InputPrompt").click()
        self.page.keyboard.press("Control+Enter")
        expect(cell.locator(".jp-InputPrompt")).not_to_have_text(before)
        self.wait_for(cell_id)
        return self.output(cell_id)

    def run_all(self) -> None:
        """Choose `Run All Cells` in the menu; returns at once."""
        self.page.locator(".lm-MenuBar-itemLabel", has_text=re.compile("^Run$")).click()
        self.page.locator(".lm-Menu-itemLabel", has_text=re.compile("^Run All Cells$")).click()

    def wait_for(self, cell_id: str) -> None:
        """Return when the code cell has run. Raises `AssertionError` for an error in any cell."""
        finished = self.cell(cell_id).locator(".jp-InputPrompt", has_text=re.compile(r"^\[\d+\]:$"))
        errors = self.page.locator("[data-mime-type='application/vnd.jupyter.error']")
        expect(finished.or_(errors).first).to_be_attached()
        assert errors.count() == 0, errors.first.inner_text()
