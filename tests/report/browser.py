"""What does a browser see on a page? Headless Chromium over its debugging pipe, nothing to install.

`inspect_page` is shared by the tests of the page and of the experiments.
"""

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--remote-debugging-pipe",
)
MEASURE = """JSON.stringify({
  title: document.title,
  text: document.body.innerText,
  images: [...document.images].map(i => ({alt: i.alt, width: i.naturalWidth})),
  resources: performance.getEntriesByType('resource').map(r => r.name),
  overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
  ground: getComputedStyle(document.body).backgroundColor,
})"""


def inspect_page(
    path: str | os.PathLike,
    *,
    width: int = 1200,
    dark: bool = False,
    screenshot: str | os.PathLike | None = None,
    timeout: float = 60.0,
) -> dict:
    """Open a local page and report what the browser saw.

    Args:
        path: the HTML file.
        width: of the window, CSS pixels.
        dark: whether the reader prefers a dark page.
        screenshot: where to keep a PNG of the whole page.
        timeout: seconds for the whole visit.

    Returns:
        title, text, images (alt and natural width), resources, overflow (pixels beyond the
        window's width), ground (background colour), errors (console messages, exceptions and
        failed loads) and requests (every address asked for, apart from the page and data: ones).
    """
    address = Path(path).resolve().as_uri()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = _Browser(profile, timeout)
        try:
            return _visit(browser, address, width, dark, screenshot)
        finally:
            browser.close()


def _visit(browser, address, width, dark, screenshot) -> dict:
    """Load the page in a fresh tab and measure it."""
    target = browser.ask("Target.createTarget", url="about:blank")["targetId"]
    attached = browser.ask("Target.attachToTarget", targetId=target, flatten=True)
    browser.session = attached["sessionId"]
    for domain in ("Network", "Runtime", "Log", "Page"):
        browser.ask(f"{domain}.enable")
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.ask("Emulation.setDeviceMetricsOverride", **metrics)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    browser.ask("Emulation.setEmulatedMedia", features=[scheme])
    browser.ask("Page.navigate", url=address)
    browser.wait("Page.loadEventFired")
    seen = json.loads(browser.ask("Runtime.evaluate", expression=MEASURE)["result"]["value"])
    if screenshot is not None:
        size = browser.ask("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        shot = browser.ask("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        Path(screenshot).write_bytes(base64.b64decode(shot["data"]))
    errors, requests = [], []
    wrong = ("Runtime.exceptionThrown", "Network.loadingFailed", "Log.entryAdded")
    for name, event in browser.events:
        if name == "Network.requestWillBeSent":
            requests.append(event["request"]["url"])
        said = name == "Runtime.consoleAPICalled" and event["type"] in ("error", "warning")
        if said or name in wrong:
            errors.append(f"{name}: {json.dumps(event)[:300]}")
    outside = [url for url in requests if url != address and not url.startswith("data:")]
    return seen | {"errors": errors, "requests": outside}


class _Browser:
    """One Chromium process; messages are JSON ended by a zero byte on descriptors 3 and 4."""

    def __init__(self, profile: str, timeout: float):
        if CHROMIUM is None:
            raise RuntimeError("no chromium on PATH")
        read_in, self._out = os.pipe()
        self._in, write_out = os.pipe()
        command = [CHROMIUM, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        script = f'exec "$@" 3<&{read_in} 4>&{write_out}'
        self._process = subprocess.Popen(
            ["bash", "-c", script, "chromium", *command],
            pass_fds=(read_in, write_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(read_in)
        os.close(write_out)
        os.set_blocking(self._in, False)
        self._buffer, self._count = b"", 0
        self._deadline = time.monotonic() + timeout
        self.session: str | None = None
        self.events: list[tuple[str, dict]] = []

    def ask(self, method: str, **params) -> dict:
        """Send one command and return its result."""
        self._count += 1
        message = {"id": self._count, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            reply = self._next()
            if reply.get("id") == self._count:
                if "error" in reply:
                    raise RuntimeError(f"{method}: {reply['error']['message']}")
                return reply["result"]

    def wait(self, event: str) -> None:
        """Return once the event has been seen."""
        while all(name != event for name, _ in self.events):
            self._next()

    def close(self) -> None:
        """End the process that was started here."""
        self._process.kill()
        self._process.wait()
        os.close(self._in)
        os.close(self._out)

    def _next(self) -> dict:
        """The next message; events are kept aside as well."""
        while b"\0" not in self._buffer:
            if time.monotonic() > self._deadline:
                raise TimeoutError("the browser did not answer in time")
            if self._process.poll() is not None:
                raise RuntimeError(f"the browser ended with code {self._process.returncode}")
            try:
                self._buffer += os.read(self._in, 1 << 16)
            except BlockingIOError:
                time.sleep(0.005)
        raw, self._buffer = self._buffer.split(b"\0", 1)
        message = json.loads(raw)
        if "method" in message:
            self.events.append((message["method"], message.get("params", {})))
        return message
