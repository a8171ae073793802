"""The console as an ASGI application: its addresses, who may use them, and what every response has (CT-161 to
CT-165)."""

from __future__ import annotations

import asyncio
import secrets
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

import anyio
import anyio.to_thread
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kip932.errors import (
    ClusterAuthorizationFailedError,
    GroupAuthorizationFailedError,
    KafkaError,
    NetworkError,
    RequestTimedOutError,
    SaslAuthenticationFailedError,
    TopicAuthorizationFailedError,
)
from sharegroups.cli.dlq.times import time_text
from sharegroups.console import configs, dead_letters, groups, memory, overview, resets, topics
from sharegroups.console.audit import AuditLog
from sharegroups.console.guard import HEADERS, is_known_host, is_same_origin
from sharegroups.console.live import EndedError, Live, TroubleError
from sharegroups.console.rendering import Rendering
from sharegroups.console.sessions import Session, Sessions
from sharegroups.console.sign_in import SignIn
from sharegroups.console.tasks import Tasks
from sharegroups.console.visit import Handler, Moved, Page, RefusedError, Visit, link
from sharegroups.errors import ConfigError, IllegalStateError
from sharegroups.insight.figures import age

#: The largest form; a reset of 5,000 partitions fits.
_NO_RIGHT: Final = (ClusterAuthorizationFailedError, GroupAuthorizationFailedError, TopicAuthorizationFailedError)
BODY_MAX: Final = 1_000_000
_FIELDS_MAX: Final = 2_000
#: How many threads live pages take, of their own: while the cluster does not answer, other pages have theirs.
_LIVE_THREADS: Final = 20
#: How often sessions that have ended are closed, in seconds.
_EXPIRE_S: Final = 30.0

PAGES: Final[Mapping[str, Handler]] = {
    "/": overview.page,
    "/dlq": dead_letters.topics_page,
    "/dlq/topic": dead_letters.counts_page,
    "/dlq/letters": dead_letters.list_page,
    "/dlq/letter": dead_letters.letter_page,
    "/task": dead_letters.task_page,
    "/group": groups.group_page,
    "/explain": groups.explain_page,
    "/reset": resets.form_page,
    "/topics": topics.topics_page,
    "/topic": topics.topic_page,
    "/records": topics.records_page,
    "/record": topics.record_page,
    "/configs": configs.page,
    "/memory": memory.page,
    "/nodes": topics.nodes_page,
}
Action = Callable[[Visit, dead_letters.Audited], Page | Moved]
#: What changes nothing, and what changes something: only the latter is refused by --read-only.
QUESTIONS: Final[Mapping[str, Action]] = {
    "/dlq/redrive": dead_letters.redrive_dry_run,
    "/dlq/redrive/chosen": dead_letters.redrive_chosen_dry_run,
    "/dlq/purge": dead_letters.purge_dry_run,
    "/task/stop": dead_letters.stop,
    "/reset/plan": lambda visit, _: resets.plan_page(visit),
}
CHANGES: Final[Mapping[str, Action]] = {
    "/task/confirm": dead_letters.confirm,
    "/reset/set": resets.execute,
    "/configs/change": configs.change,
}


@dataclass(frozen=True, slots=True)
class Options:
    """How the console was started. `settings`: those of its clients without credentials. `port`: that of its address.

    `local`: how a user on this machine who did not sign in is named; "" if everyone has to sign in. `link`: the secret
    that signs in the user who started it, with `own` settings; "" for none. `hosts`: its names, in lower case.
    """

    settings: Mapping[str, Any]
    port: int
    hosts: frozenset[str] = frozenset()
    on_loopback: bool = True
    secure: bool = False
    read_only: bool = False
    local: str = ""
    link: str = field(default="", repr=False)
    own: Mapping[str, Any] = field(default_factory=dict, repr=False)
    own_name: str = ""


class Console:
    """The console: create it, and give `app` to a server. `close_streams` lets the server end."""

    def __init__(self, options: Options, audit: AuditLog, live: Live | None = None) -> None:
        self.options = options
        self.live = live or Live()
        self.sessions = Sessions()
        self.tasks = Tasks(_now_ms)
        self._live_threads = anyio.CapacityLimiter(_LIVE_THREADS)
        self._audit = audit
        self._cookie = ("__Host-" if options.secure else "") + f"sharegroups-{options.port}"
        self._sign_in = SignIn(options.settings)
        self._rendering = Rendering({"read_only": options.read_only, "version": secrets.token_hex(4)})
        self._local = self._new_session(options.local, options.settings, is_local=True) if options.local else None
        self.app = self._application()

    def close_streams(self) -> None:
        """End all event streams, which would keep a server from ending."""
        self.live.close()

    def _application(self) -> ASGIApp:
        reading = [Route(path, self._get(path, handler), methods=["GET"]) for path, handler in PAGES.items()]
        asking = [Route(path, self._post(action), methods=["POST"]) for path, action in QUESTIONS.items()]
        changing = [Route(path, self._post(action, changes=True), methods=["POST"]) for path, action in CHANGES.items()]
        own = [
            Route("/live", self._live, methods=["GET"]),
            Route("/sign-in", self._show_sign_in, methods=["GET"]),
            Route("/sign-in", self._take_sign_in, methods=["POST"]),
            Route("/sign-out", self._sign_out, methods=["POST"]),
            Mount("/static", StaticFiles(packages=[("sharegroups.console", "static")])),
        ]
        app = Starlette(
            routes=[*reading, *asking, *changing, *own],
            exception_handlers={404: self._not_found, ClientDisconnect: self._gone, Exception: self._broken},
            lifespan=self._lifespan,
            max_body_size=BODY_MAX,
        )
        return _Guarded(app, self.options)

    @asynccontextmanager
    async def _lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        expiring = asyncio.create_task(self._expire())
        try:
            yield
        finally:
            expiring.cancel()
            self.live.close()
            await run_in_threadpool(self._close)

    def _close(self) -> None:
        self.tasks.close()
        for session in [*self.sessions.end_all(), *([self._local] if self._local else [])]:
            session.close()
        self._audit.close()

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(_EXPIRE_S)
            await self._end(self.sessions.expire(time.monotonic()))

    async def _end(self, ended: Iterable[Session]) -> None:
        for session in ended:
            self.tasks.stop_of(session)
            await run_in_threadpool(session.close)

    # Sessions.

    @staticmethod
    def _new_session(user: str, settings: Mapping[str, Any], *, is_local: bool = False) -> Session:
        now_s = time.monotonic()
        return Session(user, settings, now_s, now_s, is_local)

    def _session(self, request: Request) -> Session | None:
        found = self.sessions.find(request.cookies.get(self._cookie, ""), time.monotonic())
        return found or self._local

    async def _signed_in(self, session: Session, to: str) -> Response:
        name, ended = self.sessions.open(session)
        await self._end(ended)
        response = RedirectResponse(to, 303)
        response.set_cookie(self._cookie, name, httponly=True, samesite="strict", secure=self.options.secure, path="/")
        return response

    async def _show_sign_in(self, request: Request) -> Response:
        given = request.query_params.get("link", "")
        if self.options.link and secrets.compare_digest(given.encode("utf-8", "replace"), self.options.link.encode()):
            session = self._new_session(self.options.own_name, self.options.own)
            return await self._signed_in(session, "/")
        wrong = "This link is not the one of the console that runs now; it prints its link when it starts."
        return self._sign_in_page(request, wrong if given else "")

    def _sign_in_page(self, request: Request, error: str = "", status: int = 200) -> Response:
        values = {"error": error, "to": _own_path(request.query_params.get("to", "/"))}
        return self._html(Page("sign_in.html", values, status), None, "", _now_ms())

    async def _take_sign_in(self, request: Request) -> Response:
        if not is_same_origin(request.headers):
            return self._refused(request, None, RefusedError("The form was sent by another site.", 403))
        form = dict(await _form(request))
        now_ms, client = _now_ms(), _client(request)
        try:
            user, settings = await self._sign_in.checked(form)
        except RefusedError as error:
            with suppress(OSError):  # changes are not made then; pages can still be read
                self._audit.write(form.get("user", ""), client, "sign in", f"refused: {error}", now_ms=now_ms)
            return self._sign_in_page(request, error.message, error.status)
        with suppress(OSError):  # changes are not made then; pages can still be read
            self._audit.write(user, client, "sign in", "done", now_ms=now_ms)
        return await self._signed_in(self._new_session(user, settings), _own_path(form.get("to", "/")))

    async def _sign_out(self, request: Request) -> Response:
        session = self.sessions.find(request.cookies.get(self._cookie, ""), time.monotonic())
        if session is not None:
            form = await _form(request)
            if error := _forged(request, session, form):
                return self._refused(request, session, error)
            self.sessions.end(session)
            await self._end([session])
        response = RedirectResponse("/sign-in", 303)
        response.delete_cookie(self._cookie, httponly=True, samesite="strict", secure=self.options.secure, path="/")
        return response

    # Pages.

    def _get(self, path: str, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        async def get(request: Request) -> Response:
            session = self._session(request)
            if session is None:
                return self._to_sign_in(request)
            fields = parse_qsl(request.url.query, keep_blank_values=True, max_num_fields=_FIELDS_MAX)
            visit = Visit(session, self.tasks, fields, _client(request), _now_ms(), path)
            return await self._answer(request, visit, partial(handler, visit))

        return get

    def _post(self, action: Action, *, changes: bool = False) -> Callable[[Request], Awaitable[Response]]:
        async def post(request: Request) -> Response:
            session = self._session(request)
            if session is None:
                return self._to_sign_in(request)
            form = await _form(request)
            if error := _forged(request, session, form):
                return self._refused(request, session, error)
            if changes and self.options.read_only:
                refusal = "This console was started with --read-only: it changes nothing."
                return self._refused(request, session, RefusedError(refusal, 403))
            query = parse_qsl(request.url.query, keep_blank_values=True, max_num_fields=_FIELDS_MAX)
            visit = Visit(session, self.tasks, [*query, *form], _client(request), _now_ms(), request.url.path)
            return await self._answer(request, visit, partial(action, visit, self._audited))

        return post

    def _audited(self, visit: Visit, action: str) -> Callable[[str], object]:
        """Write that a change begins; return what writes its outcome. Raises RefusedError if it cannot be written."""
        number = secrets.token_hex(4)

        def write(outcome: str) -> None:
            self._audit.write(visit.session.user, visit.client, action, outcome, now_ms=_now_ms(), number=number)

        try:
            write("begins")
        except OSError as error:
            raise RefusedError(f"The audit log cannot be written ({error}); nothing was changed.", 503) from error
        return write

    async def _answer(self, request: Request, visit: Visit, make: Callable[[], Page | Moved]) -> Response:
        try:
            page = await run_in_threadpool(make)
        except RefusedError as error:
            return self._refused(request, visit.session, error)
        except (KafkaError, ConfigError, IllegalStateError) as error:
            return self._failed(request, visit, error)
        if isinstance(page, Moved):
            return RedirectResponse(page.url, 303)
        is_live = request.method == "GET" and self._rendering.is_live(page)
        if is_live:
            visit.session.keep(_address(request), page, visit.now_ms)
        return self._html(page, visit.session, _address(request) if is_live else "", visit.now_ms)

    def _html(self, page: Page, session: Session | None, live: str, now_ms: int, trouble: str = "") -> Response:
        values = {"session": session, "live": live, "as_of": time_text(now_ms), "trouble": trouble}
        return HTMLResponse(self._rendering.html(page, **values), page.status)

    def _failed(self, request: Request, visit: Visit, error: Exception) -> Response:
        """Return the last figures of the page with what is wrong; without any, the error."""
        text, status = _words(error)
        kept = visit.session.kept.get(_address(request))
        if status == 503 and kept is not None and request.method == "GET":
            old = age(visit.now_ms - kept.at_ms)
            page = replace(kept.page, status=503)
            trouble = f"{text} These figures are {old} old."
            return self._html(page, visit.session, _address(request), kept.at_ms, trouble)
        return self._refused(request, visit.session, RefusedError(text, status))

    def _refused(self, request: Request, session: Session | None, error: RefusedError) -> Response:
        values = {"message": error.message, "status": error.status, "back": _own_path(_back(request))}
        return self._html(Page("refused.html", values, error.status), session, "", _now_ms())

    def _not_found(self, request: Request, _error: Exception) -> Response:
        return self._refused(request, self._session(request), RefusedError("There is no such page.", 404))

    @staticmethod
    def _gone(_request: Request, _error: Exception) -> Response:
        """Return what is sent to a client that left within its form: it arrives nowhere, and nothing has failed."""
        return PlainTextResponse("", 408)

    def _broken(self, request: Request, error: Exception) -> Response:
        """Return a page for a fault of the console; the server logs it with its traceback."""
        text = f"The console failed: {type(error).__name__}. Its log has more; please report it."
        return self._refused(request, self._session(request), RefusedError(text, 500))

    def _to_sign_in(self, request: Request) -> Response:
        to = _address(request) if request.method == "GET" else "/"
        return RedirectResponse(link("/sign-in", to=to), 303)

    # Live pages.

    async def _live(self, request: Request) -> Response:
        session = self._session(request)
        address = _own_path(request.query_params.get("page", "/"))
        split = urlsplit(address)
        handler = PAGES.get(split.path)
        if session is None or handler is None:
            return PlainTextResponse("no such page, or no session", 404)
        if self.live.is_full:
            return PlainTextResponse("too many viewers", 503, {"Retry-After": "30"})
        fields = parse_qsl(split.query, keep_blank_values=True, max_num_fields=_FIELDS_MAX)
        client = _client(request)

        async def render() -> str:
            if not session.is_local and not self.sessions.is_open(session, time.monotonic()):
                raise EndedError
            visit = Visit(session, self.tasks, fields, client, _now_ms(), split.path)
            return await self._live_part(handler, visit, address)

        stream = self.live.watch((session.id, address), render)
        return StreamingResponse(stream, media_type="text/event-stream")

    async def _live_part(self, handler: Handler, visit: Visit, address: str) -> str:
        try:
            page = await anyio.to_thread.run_sync(handler, visit, limiter=self._live_threads)
        except RefusedError as error:
            raise TroubleError(error.message) from error
        except Exception as error:
            raise TroubleError(_words(error)[0]) from error
        if not isinstance(page, Page):
            raise TroubleError("This page is somewhere else now.")
        if not self._rendering.is_live(page):
            raise TroubleError("This page does not change while it is open; reload it.")
        visit.session.keep(address, page, visit.now_ms)
        values = {"session": visit.session, "as_of": time_text(visit.now_ms)}
        return self._rendering.live(page, **values)


class _Guarded:
    """Refuses requests for other hosts and of other sites, and adds the headers that every response has."""

    def __init__(self, app: ASGIApp, options: Options) -> None:
        self._app, self._options = app, options

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = {name.lower() for name, _ in message["headers"]}
                more = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
                if self._options.secure:
                    more.append((b"strict-transport-security", b"max-age=31536000"))
                message["headers"] = [*message["headers"], *(each for each in more if each[0] not in given)]
            await send(message)

        request = Request(scope)
        refusal = self._refusal(request)
        await (self._app if refusal is None else refusal)(scope, receive, sending)

    def _refusal(self, request: Request) -> Response | None:
        host = request.headers.get("host", "")
        if not is_known_host(host, self._options.hosts, on_loopback=self._options.on_loopback):
            known = ", ".join(sorted(self._options.hosts)) or "localhost"
            return PlainTextResponse(
                f"The address has the host {host!r}; this console is {known}. Another name of it is made known with "
                "--allowed-host.\n",
                421,
            )
        headers = request.headers
        if headers.get("sec-fetch-site") == "cross-site" and headers.get("sec-fetch-mode") != "navigate":
            return PlainTextResponse("Another site asked for this; it is refused.\n", 403)
        return None


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _client(request: Request) -> str:
    return request.client.host if request.client is not None else "-"


def _address(request: Request) -> str:
    return request.url.path + (f"?{request.url.query}" if request.url.query else "")


def _own_path(text: str) -> str:
    """Return an address on this console; "/" for anything else."""
    return text if text.startswith("/") and not text.startswith(("//", "/\\")) and text.isprintable() else "/"


def _back(request: Request) -> str:
    split = urlsplit(request.headers.get("referer", ""))
    return split.path + (f"?{split.query}" if split.query else "") if split.netloc else "/"


async def _form(request: Request) -> list[tuple[str, str]]:
    """Return the fields of a form. Starlette refuses one that is too large."""
    text = (await request.body()).decode("utf-8", "replace")
    try:
        return parse_qsl(text, keep_blank_values=True, max_num_fields=_FIELDS_MAX)
    except ValueError:
        return []


def _forged(request: Request, session: Session, form: list[tuple[str, str]]) -> RefusedError | None:
    """Return why a form is not taken: it must come from a page of this console and session."""
    if not is_same_origin(request.headers):
        return RefusedError("The form was sent by another site; nothing was done.", 403)
    given = next((value for name, value in form if name == "csrf"), "")
    if not secrets.compare_digest(given.encode("utf-8", "replace"), session.csrf.encode()):
        return RefusedError(
            "The form is from an earlier session; nothing was done. Reload the page, and send it from there.", 403
        )
    return None


def _words(error: Exception) -> tuple[str, int]:
    """Return what a page says about an error, and its status."""
    if isinstance(error, NetworkError | RequestTimedOutError):
        return f"The cluster does not answer: {error.message}.".replace("..", "."), 503
    if isinstance(error, SaslAuthenticationFailedError):
        return f"The cluster does not accept these credentials any more: {error.message}. Sign in again.", 401
    if isinstance(error, _NO_RIGHT):
        return f"{error.message} Sign in as a user who may.", 403
    if isinstance(error, KafkaError):
        return f"{error.name}: {error.message}", 409
    if isinstance(error, ConfigError | IllegalStateError):
        return str(error), 401
    print(f"Error: a page failed: {type(error).__name__}: {error}", file=sys.stderr)
    return f"The console failed: {type(error).__name__}: {error}", 500
