"""satchel device: phones and boards, by adb and ssh."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from satchel.cli.arguments import count, positive
from satchel.cli.bench_device import (
    add_device_options,
    bench_flags,
    device_table,
    told_conditions,
    told_device,
)
from satchel.cli.output import emit, print_json, table
from satchel.cli.repeat import add_cool_down
from satchel.errors import DeviceError

if TYPE_CHECKING:
    from satchel.devices import ShellDevice

HELP = "phones and boards by adb and ssh: list them, send files, run and measure programs there"
_DEVICE = "ssh:[USER@]HOST[:PORT] or adb:SERIAL"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    def action(name: str, text: str) -> argparse.ArgumentParser:
        told = text[0].upper() + text[1:] + "."
        sub = actions.add_parser(name, help=text, description=told, allow_abbrev=False)
        sub.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="as above")
        return sub

    listing = action("list", "what adb sees and ~/.ssh/config names, or what named ones are like")
    listing.add_argument("devices", nargs="*", metavar="DEVICE", help=_DEVICE)
    push = action("push", "send files, as far as they are not there")
    push.add_argument("device", metavar="DEVICE", help=_DEVICE)
    push.add_argument("files", nargs="+", metavar="FILE", help="what to send")
    pull = action("pull", "bring a file back")
    pull.add_argument("device", metavar="DEVICE", help=_DEVICE)
    pull.add_argument("place", metavar="PLACE", help="its path on the device")
    pull.add_argument("output", nargs="?", default=".", metavar="FILE", help="a file or folder")
    run = action("run", "answer a prompt there: TEXT and options are those of satchel-run run")
    run.usage = f"{run.prog} DEVICE FILE TEXT [options]"
    run.add_argument("device", metavar="DEVICE", help=_DEVICE)
    run.add_argument("file", metavar="FILE", help="a program")
    bench = action("bench", "measure programs there, as a table")
    bench.add_argument("device", metavar="DEVICE", help=_DEVICE)
    bench.add_argument("files", nargs="+", metavar="FILE", help="a program")
    bench.add_argument("--prompt-tokens", type=positive, default=256, metavar="N", help="(256)")
    bench.add_argument("--new-tokens", type=positive, default=64, metavar="N", help="(64)")
    bench.add_argument("--warmup", type=count, default=1, metavar="N", help="not counted (1)")
    bench.add_argument("--runs", "--iterations", type=positive, default=3, metavar="N", help="(3)")
    bench.add_argument("--threads", type=positive, default=argparse.SUPPRESS, metavar="N")
    bench.add_argument(
        "--target",
        metavar="CHIP",
        help="where to run it there, as satchel-run --help has it",
    )
    add_cool_down(bench)
    for each in (push, run, bench):
        add_device_options(each, named=False)


def execute(arguments: argparse.Namespace) -> int:
    from satchel.devices import open_device

    if arguments.action == "list":
        _list(arguments)
        return 0
    device = open_device(arguments.device, getattr(arguments, "folder", None))
    actions = {"push": _push, "pull": _pull, "run": _run, "bench": _bench}
    return actions[arguments.action](device, arguments)


def _list(arguments: argparse.Namespace) -> None:
    from dataclasses import asdict

    from satchel.devices import list_devices, open_device

    if not arguments.devices:
        found = list_devices()
        if arguments.json:
            print_json({"devices": found})
        elif found:
            emit(table([[d["name"], d["state"], d["model"]] for d in found], ["name", "state", ""]))
        else:
            emit("There is none. Connect a phone by adb, or name a machine as ssh:HOST.")
        return
    described = [open_device(name).describe() for name in arguments.devices]
    if arguments.json:
        listed = [{**each.to_dict(), **asdict(each.condition)} for each in described]
        print_json({"devices": listed})
        return
    for each in described:
        emit(told_device(each.to_dict()))


def _push(device: ShellDevice, arguments: argparse.Namespace) -> int:
    from satchel.progress import ProgressBar

    bar = ProgressBar()
    places = [device.push(file, bar) for file in arguments.files]
    bar.close()
    if arguments.json:
        print_json({"device": device.name, "places": places})
    else:
        emit("\n".join(places))
    return 0


def _pull(device: ShellDevice, arguments: argparse.Namespace) -> int:
    from satchel.progress import ProgressBar

    bar = ProgressBar()
    path = device.pull(arguments.place, arguments.output, bar)
    bar.close()
    if arguments.json:
        print_json({"device": device.name, "output": str(path)})
    else:
        emit(path)
    return 0


def _run(device: ShellDevice, arguments: argparse.Namespace) -> int:
    from satchel.devices.bench import bring_runner, find_runner
    from satchel.progress import ProgressBar

    bar = ProgressBar()
    description = device.describe()
    runner = find_runner(description, arguments.runner)
    place = bring_runner(device, description, runner, bar)
    file = device.push(arguments.file, bar)
    bar.close()
    words = [place, "run", file, *arguments.for_runner, *(["--json"] if arguments.json else [])]
    return device.show(words)


def _bench(device: ShellDevice, arguments: argparse.Namespace) -> int:
    from satchel.devices import bench_on
    from satchel.progress import ProgressBar

    bar = ProgressBar()
    results, failures = [], []
    for file in arguments.files:
        try:
            results.append(bench_on(device, file, bench_flags(arguments), arguments.runner, bar))
        except DeviceError as error:  # the others are measured all the same
            if len(arguments.files) == 1:
                raise
            failures.append({"program": file, "error": error.on_command_line})
    bar.close()
    if arguments.json:
        print_json({"results": results, "failures": failures})
        return 1 if failures else 0
    if results:
        emit(device_table(results))
        emit(told_device(results[-1]["device"]))
        emit(told_conditions(results[-1]["device"]))
    for failure in failures:
        emit(f"{failure['program']}: {failure['error']}")
    return 1 if failures else 0
