"""A browser for the console's pages, without a window: it follows links and sends forms as a real one does."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from typing import Any, Final

from httpx2 import Client, Response
from starlette.testclient import TestClient

from sharegroups.console.app import Console

ORIGIN: Final = "http://127.0.0.1:7980"
_FORM: Final = re.compile(r'<form method="post" action="([^"]*)"[^>]*>(.*?)</form>', re.DOTALL)
_HIDDEN: Final = re.compile(r'<input type="(?:hidden)" name="([^"]*)" value="([^"]*)"')
_AREA: Final = re.compile(r'<textarea name="([^"]*)" hidden>(.*?)</textarea>', re.DOTALL)


class Browser:
    """One user's browser. `client`: its connection to a console at `origin`."""

    def __init__(self, client: Client, origin: str = ORIGIN) -> None:
        self.client, self.origin = client, origin

    def get(self, path: str, status: int = 200, **headers: str) -> str:
        """Open a page, and return its HTML."""
        response = self.client.get(path, headers=headers)
        assert response.status_code == status, (path, response.status_code, text_of(response.text))
        return response.text

    def send(self, page: str, action: str, status: int = 200, **fields: str | list[str]) -> Response:
        """Send the form of a page whose address begins with `action`, and follow where it leads."""
        for address, form in _FORM.findall(page):
            if html.unescape(address).startswith(action):
                hidden = [*_HIDDEN.findall(form), *_AREA.findall(form)]
                known = {name: html.unescape(value) for name, value in hidden}
                sent: dict[str, Any] = {**known, **fields}
                response = self.post(html.unescape(address), **sent)
                assert response.status_code == status, (response.status_code, text_of(response.text))
                return response
        raise AssertionError(f"no form for {action} in {text_of(page)}")

    def post(self, address: str, origin: str = "", **fields: str | list[str]) -> Response:
        """Send fields to an address, by default as a page of the console does."""
        return self.client.post(address, data=fields, headers={"origin": origin or self.origin})

    def until(self, path: str, holds: Callable[[str], bool]) -> str:
        """Open a page again until it is as expected."""
        for _ in range(3_000):
            page = self.get(path)
            if holds(page):
                return page
        raise AssertionError(text_of(page))

    def task(self, response: Response) -> str:
        """Return the page of a task that a form led to, once it has ended."""
        path = response.url.path + "?" + response.url.query.decode()
        return self.until(path, lambda page: "Done at" in page or "Ended with an error" in page)


class OwnConsole(Browser):
    """A browser, and the console that runs in this process. Use it as `with`, which runs the console."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._own = TestClient(console.app, base_url=ORIGIN)
        super().__init__(self._own)

    def __enter__(self) -> OwnConsole:
        self._own.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._own.__exit__(*error)


def text_of(page: str) -> str:
    """Return what a reader sees, in one line."""
    without = re.sub(r"<(script|style|title).*?</\1>", " ", page, flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", without)).split())
