"""A real headless Chromium, driven over the plain HTTP of WebDriver: nothing to install but the
browser and its driver."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
MISSING = "there is no chromium with its chromedriver on this machine"


def is_here() -> bool:
    """Whether browser and driver are on this machine."""
    return bool(shutil.which("chromium") and shutil.which("chromedriver"))


class Browser:
    """One window with a fresh profile in `folder`; a context manager."""

    def __init__(self, folder: Path, width: int = 1280, height: int = 900) -> None:
        self._folder, self._size = folder, (width, height)

    def __enter__(self) -> Browser:
        self._driver = subprocess.Popen(
            ["chromedriver", "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        try:
            self._base = f"http://127.0.0.1:{self._port()}/session"
            width, height = self._size
            profile = f"--user-data-dir={self._folder / 'profile'}"
            options = {
                "binary": shutil.which("chromium"),
                "args": [*FLAGS, profile, f"--window-size={width},{height}"],
            }
            wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
            session = self._call("", {"capabilities": {"alwaysMatch": wanted}})
        except BaseException:
            self._driver.kill()
            raise
        self._base += "/" + session["sessionId"]
        self.emulate(width=width, height=height, deviceScaleFactor=1, mobile=False)
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._call("", method="DELETE")
        finally:
            self._driver.terminate()
            self._driver.communicate()

    def emulate(self, **metrics: Any) -> None:
        """The size of what is shown; below 500 pixels too, which a window cannot be."""
        self.command("Emulation.setDeviceMetricsOverride", **metrics)

    def command(self, name: str, **params: Any) -> Any:
        """A command of the browser's own protocol."""
        return self._call("/goog/cdp/execute", {"cmd": name, "params": params})

    def open(self, url: str) -> None:
        self._call("/url", {"url": url})

    def run(self, script: str) -> Any:
        """What the body of a function returns on the page; a promise is waited for."""
        return self._call("/execute/sync", {"script": script, "args": []})

    def press(self, *keys: str) -> None:
        """Keys by their WebDriver codes, each down and up; Shift (\\ue008) holds until the end."""
        down = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        if keys[0] == "\ue008":
            down = [down[0], *down[2:], down[1]]
        self._call("/actions", {"actions": [{"type": "key", "id": "keys", "actions": down}]})

    def complaints(self) -> list[str]:
        """What the page's console says since the last call."""
        return [entry["message"] for entry in self._call("/se/log", {"type": "browser"})]

    def picture(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self._call("/screenshot", method="GET")))

    def _port(self) -> str:
        assert self._driver.stdout is not None
        for line in self._driver.stdout:
            found = re.search(rb"started successfully on port (\d+)", line)
            if found:
                return found[1].decode()
        raise RuntimeError("chromedriver ended before it took requests")

    def _call(self, path: str, body: Any = None, method: str = "POST") -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._base + path, data, method=method)
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
            request, timeout=60
        ) as answer:
            return json.loads(answer.read())["value"]
