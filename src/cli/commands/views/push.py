"""The command that sends recorded runs to where traces are looked at: push."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ....fail.errors import InputError
from ....runtime.formats.escape import escape_terminal
from ...console import painter
from ..common import Verb, near, path_given, run_folders, seconds_given


def add(commands: Any, verb: Verb) -> None:
    """Add the command push."""
    parser = verb(commands, "push", push)
    parser.add_argument("runs", nargs="+", type=path_given, metavar="RUN", help="folders of runs")
    parser.add_argument(
        "--endpoint", required=True, metavar="URL", help="http://HOST:PORT[/PATH] or grpc://HOST:PORT"
    )
    parser.add_argument(
        "--protocol",
        metavar="NAME",
        help="grpc, http/protobuf or http/json (default: http/protobuf, or grpc at a grpc:// address)",
    )
    parser.add_argument(
        "--header", action="append", default=[], metavar="K=V", help="sent with every request; never printed"
    )
    parser.add_argument(
        "--timeout",
        type=seconds_given,
        default=30.0,
        metavar="S",
        help="what one run may take, repeats included (30)",
    )
    parser.add_argument(
        "--now", action="store_true", help="move each trace so that it ends now, under ids of its own"
    )
    parser.add_argument(
        "--content", action="store_true", help="send what was said too: messages, arguments, results"
    )


def push(options: argparse.Namespace) -> int:
    """Send the traces of recorded runs; all are verified before the first is sent."""
    from ....evidence.sending.push import check_run, trace_of
    from ....tracing.export import NotDelivered
    from ....tracing.push import Sender, now_ns

    headers = [_header(text) for text in options.header]
    sender = Sender(options.endpoint, protocol=options.protocol, headers=headers, timeout_s=options.timeout)
    root, folders = run_folders(options)
    sent: list[dict[str, Any]] = []
    problem = None
    paint = painter(sys.stdout, options.no_color)
    with _progress(2 * len(folders), options.json) as step:
        for folder in folders:
            step()
            check_run(folder, root)
        for folder in folders:
            step()
            trace = trace_of(folder, root, content=options.content, end_ns=now_ns() if options.now else None)
            try:
                receipt = sender.send(trace.spans, trace.document)
            except NotDelivered as error:
                problem = f"{near(folder)}: not delivered to {sender.shown}: {error}{_remedy(str(error))}"
                break
            sent.append({"run": near(folder), "trace_id": trace.trace_id, **receipt._asdict()})
            if not options.json:
                _say(sent[-1], paint)
    bad = problem is not None or any(item["rejected"] for item in sent)
    if options.json:
        data = {"endpoint": sender.shown, "protocol": sender.protocol, "moved": options.now}
        print(
            json.dumps({**data, "content": options.content, "sent": sent, "problem": problem}, sort_keys=True)
        )
    elif problem is None:
        _sum_up(options, sent, sender)
    if problem is not None:
        done = f" ({len(sent)} of {len(folders)} runs were sent)" if len(folders) > 1 else ""
        print(f"tachograph: {escape_terminal(problem, 600)}{done}", file=sys.stderr)
    return 1 if bad else 0


def _remedy(problem: str) -> str:
    """Return what to do about a run that was not delivered, after a semicolon; nothing where we do not know."""
    if problem.startswith("no connection"):
        return "; start a receiver there, or give the --endpoint of one"
    if problem in ("status 401", "status 403"):
        return "; give the key that the receiver asks for, by --header"
    return ""


def _header(text: str) -> tuple[str, str]:
    name, mark, value = text.partition("=")
    if not mark:  # the text may be nothing but a secret
        raise InputError("a header has no value", remedy="write --header NAME=VALUE")
    return name.strip(), value.strip()


def _say(item: dict[str, Any], paint: Any) -> None:
    if item["rejected"]:
        count = f"{item['rejected']} of {item['spans']} spans refused"
        print(
            f"{paint('refused', 'red')}  {escape_terminal(item['run'], 200)}  "
            f"{count}: {escape_terminal(item['message'], 400)}"
        )
        return
    print(
        f"{paint('sent', 'green')}  {item['trace_id']}  {item['spans']:>4} spans  {escape_terminal(item['run'], 200)}"
    )
    if item["message"]:
        print(f"      it says: {escape_terminal(item['message'], 400)}")


def _sum_up(options: argparse.Namespace, sent: list[dict[str, Any]], sender: Any) -> None:
    runs = "1 run" if len(sent) == 1 else f"{len(sent)} runs"
    spans = sum(item["spans"] - item["rejected"] for item in sent)
    times = "times moved to end now, ids of their own" if options.now else "times and ids as recorded"
    more = ", with what was said" if options.content else ""
    print(
        f"push: {runs}, {spans} spans to {escape_terminal(sender.shown, 200)} ({sender.protocol}); {times}{more}"
    )


@contextmanager
def _progress(total: int, as_json: bool) -> Iterator[Any]:
    """Show a counter on standard error: at a terminal only, where no other output shows progress."""
    is_shown = sys.stderr.isatty() and total > 2 and (as_json or not sys.stdout.isatty())
    done = 0

    def step() -> None:
        nonlocal done
        done += 1
        if is_shown:
            print(f"\rpush: step {done} of {total}", end="", file=sys.stderr, flush=True)

    try:
        yield step
    finally:
        if is_shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
