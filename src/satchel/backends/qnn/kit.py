"""A folder to bring to a phone: the program with satchel-run, and what other runners need.

Qualcomm's libraries are named and not copied: they come with onnxruntime-qnn or Qualcomm's SDK.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
from pathlib import Path

import numpy as np

from satchel import _native
from satchel.backends.qnn.chips import Chip, find_chip
from satchel.backends.qnn.manifest import Manifest
from satchel.backends.qnn.payload import MANIFEST, extract, read_manifest
from satchel.backends.qnn.runner import Host
from satchel.errors import OutputExistsError
from satchel.runtime.program import Instance, Program

VENDOR_SETTINGS = "htp.json"
EXTENSIONS_LIBRARY = "libQnnHtpNetRunExtensions.so"

_PUSH = """\
#!/bin/sh
# Brings this kit and Qualcomm's libraries to a phone, and runs it there.
#
#     QNN_LIBRARIES=folder ./push.sh{usual}
#     QNN_LIBRARIES=folder RUNNER=file ./push.sh [ARGUMENTS]    # a runner of your own
#
# QNN_LIBRARIES is where the files that libraries.txt lists are on this machine.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
: "${{QNN_LIBRARIES:?set it to the folder that has the files in libraries.txt}}"
device=/data/local/tmp/satchel/{name}

chip=$(adb shell getprop ro.soc.model | tr -d '\\r')
if [ -n "$chip" ] && [ "$chip" != "{chip}" ] && [ "{exact}" = yes ]; then
    echo "this kit is for {chip}, and the phone has $chip: export it for qnn:$chip" >&2
    exit 1
fi
while read -r library; do
    case "$library" in ''|'#'*) continue ;; esac
    if [ ! -e "$QNN_LIBRARIES/$library" ]; then
        echo "$QNN_LIBRARIES lacks $library" >&2
        exit 1
    fi
done <"$here/libraries.txt"

adb shell mkdir -p "$device"
while read -r library; do
    case "$library" in ''|'#'*) continue ;; esac
    adb push "$QNN_LIBRARIES/$library" "$device/"
done <"$here/libraries.txt"
if [ -n "${{RUNNER:-}}" ]; then
    for file in "$here"/*.onnx "$here"/*.bin "$here"/*.json "$here"/*.table "$here"/classes.txt; do
        if [ -e "$file" ]; then adb push "$file" "$device/"; fi
    done
    adb push "$RUNNER" "$device/runner"
    adb shell "cd $device && chmod +x runner &&" \\
        "LD_LIBRARY_PATH=. ADSP_LIBRARY_PATH='$device;/vendor/dsp/cdsp' ./runner $*"
elif [ -e "$here/run.sh" ]; then
    adb push "$here/satchel-run" "$here/run.sh" "$here/model.satchel" "$device/"
    adb shell "cd $device && sh run.sh $*"
fi
"""

_RUN = """\
#!/bin/sh
# Runs the model on this device's NPU:   sh run.sh [COMMAND [ARGUMENTS]]
#
#     sh run.sh                          a conversation
#     sh run.sh run --prompt "Hello"
#     sh run.sh bench --json
#
# Qualcomm's libraries (libraries.txt) lie beside it, or where SATCHEL_QNN_LIBRARIES says.
here=$(cd "$(dirname "$0")" && pwd)
command=${{1:-chat}}
if [ $# -gt 0 ]; then shift; fi
chmod +x "$here/satchel-run" 2>/dev/null
LD_LIBRARY_PATH="$here${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"
ADSP_LIBRARY_PATH="$here;/vendor/dsp/cdsp"
TMPDIR=${{TMPDIR:-$here}}
export LD_LIBRARY_PATH ADSP_LIBRARY_PATH TMPDIR
exec "$here/satchel-run" "$command" "$here/model.satchel" --target {target} "$@"
"""

_README = """\
A model for {chip} (Hexagon v{hexagon}), compiled with onnxruntime-qnn {vendor}.

*_qnn.bin        context binaries; they run on this chip only
*.onnx           EPContext models, one for each shard and method, that name the binaries
manifest.json    shards, methods, and the encoding of every value: number = (code - zero) * scale;
                 settings: in which mode (burst, …) and with how much VTCM it is to run
htp.json, backend_extensions.json
                 the same settings, and the process domain (pd_session), as Qualcomm's own runners
                 (qnn-net-run, Genie) take them: --config_file backend_extensions.json
{files}libraries.txt    Qualcomm's libraries that the phone needs; they are not part of this kit
{runs}push.sh          brings it to a phone with adb and runs it there

{how}"""

_LANGUAGE_MODEL = """\
Run the shards of a method one after the other; what one gives under a name is what the next one
takes under it. All inputs and outputs are codes (or, of fp16, 16-bit floats). Inputs: embedded.0,
the tokens' embeddings, whose codes are the rows of embedded.0.table; rope_table_*.cos and .sin, of
their positions, which are the rows of the tables of these names; mask.*, zero for slots that a
token may see and the lowest code for others: first those of the cache, then those of the call
itself; cache.*, the KV cache, keys [heads, size, context] and values [heads, context, size].
Outputs: logits, and cache.*.new, which the runner writes into its cache at the tokens' positions,
and nothing else.
"""

_RUNS = """\
model.satchel    the whole program
satchel-run      {runner}
run.sh           runs the program on the device's NPU, with the libraries beside it
"""

_MODULE = """\
Inputs and outputs are codes: quantise what goes in and dequantise what comes out, as manifest.json
says under their names.{vision}
"""

_VISION = """ preprocessing.json tells how an image becomes the input (resize, crop, mean and
standard deviation of each channel), and line n of classes.txt is the name of output n."""


def vendor_libraries(chip: Chip) -> list[str]:
    """The libraries that a phone with this chip needs.

    >>> vendor_libraries(find_chip("qnn:SM8750"))[1:3]
    ['libQnnHtpV79Stub.so', 'libQnnHtpV79Skel.so']
    """
    version = f"libQnnHtpV{chip.hexagon}"
    return [
        "libQnnHtp.so",
        f"{version}Stub.so",
        f"{version}Skel.so",
        "libQnnSystem.so",
        "libonnxruntime_providers_qnn.so",
        "libonnxruntime.so",
    ]


def _write_tables(program: Program, manifest: Manifest, folder: Path) -> None:
    """What the CPU looks up or computes for each token and each position, as codes in rows."""
    method = max(manifest.methods.values(), key=lambda method: method.tokens)
    if method.before is None:
        return
    host, tensors, step = Host(Instance(program)), method.tensors, method.tokens
    vocabulary = int(program.metadata["vocab_size"])
    for count, of_tokens in ((vocabulary, True), (method.context, False)):
        for start in range(0, count, step):
            rows = np.arange(start, start + step, dtype=np.int32)
            tokens = np.minimum(rows, count - 1) if of_tokens else np.zeros(step, np.int32)
            position = 0 if of_tokens else min(start, max(count - step, 0))
            positions = np.arange(position, position + step, dtype=np.int32)
            made = host.run(method.before, {"tokens": tokens, "position": positions})
            for name, numbers in made.items():
                if name.startswith("embedded.") != of_tokens:
                    continue
                codes = tensors[name].encoding.quantize(numbers)
                kept = codes[: count - start] if of_tokens else codes[start - position :]
                with (folder / f"{name}.table").open("wb" if start == 0 else "ab") as file:
                    file.write(kept.tobytes())


def _write_vendor_settings(manifest: Manifest, chip: Chip, folder: Path) -> None:
    """The settings in the form that Qualcomm's runners read them in."""
    settings = manifest.settings
    names = [shard.graph for m in manifest.methods.values() for shard in m.shards]
    limits = {"vtcm_mb": settings.vtcm_mb, "hvx_threads": settings.hvx_threads}
    chosen = {name: number for name, number in limits.items() if number is not None}
    device = {
        **({"soc_model": chip.soc_model} if chip.soc_model else {}),
        "dsp_arch": f"v{chip.hexagon}",
        "pd_session": settings.process_domain,
        "cores": [{"core_id": 0, "perf_profile": settings.performance}],
    }
    document = {
        "graphs": [{"graph_names": names, **chosen}],
        "devices": [device],
        "context": {"weight_sharing_enabled": manifest.shared},
    }
    (folder / VENDOR_SETTINGS).write_text(json.dumps(document, indent=1))
    extensions = {
        "shared_library_path": EXTENSIONS_LIBRARY,
        "config_file_path": VENDOR_SETTINGS,
    }
    (folder / "backend_extensions.json").write_text(
        json.dumps({"backend_extensions": extensions}, indent=1)
    )


def _write_runner(program: Program, target: str, folder: Path) -> str:
    """The program, ``satchel-run`` and a script that starts both; what to say of the runner."""
    whole, runner = folder / "model.satchel", folder / "satchel-run"
    try:
        whole.hardlink_to(program.path)  # it takes no room then
    except OSError:
        shutil.copyfile(program.path, whole)
    given = os.environ.get("SATCHEL_RUNNER")
    own = Path(_native.__file__).parent / "device" / "bin" / runner.name
    said = f"for {platform.system()} on {platform.machine()}; SATCHEL_RUNNER=FILE brings another"
    if given or own.is_file():
        shutil.copyfile(given or own, runner)
        runner.chmod(0o755)
        said = f"a copy of {Path(given).name}, which SATCHEL_RUNNER named" if given else said
    else:
        said = "missing: build it (cmake --preset runner-android) and put it here"
    script = folder / "run.sh"
    script.write_text(_RUN.format(target=target))
    script.chmod(0o755)
    return _RUNS.format(runner=said)


def write_kit(program: Program, folder: Path) -> list[str]:
    """Write the kit into a folder that is new or empty; the names of its files."""
    if folder.exists() and any(folder.iterdir()):
        raise OutputExistsError(f"{folder} is not empty", "Give --kit another folder.")
    manifest = read_manifest(program)
    chip = find_chip(manifest.target)
    extract(program, folder)
    (folder / MANIFEST).write_bytes(program.payload(MANIFEST))
    is_module = not program.is_language_model
    vision = program.metadata.get("vision")
    if not is_module:
        (folder / "tokenizer.json").write_bytes(program.section("tokenizer"))
        _write_tables(program, manifest, folder)
    elif vision:
        (folder / "preprocessing.json").write_text(json.dumps(vision["preprocessing"], indent=1))
        (folder / "classes.txt").write_text("\n".join(vision["classes"]) + "\n")
    _write_vendor_settings(manifest, chip, folder)
    listed = [f"# of onnxruntime-qnn {manifest.vendor}, for Android", *vendor_libraries(chip)]
    (folder / "libraries.txt").write_text("\n".join(listed) + "\n")
    words: dict[str, object] = {"chip": chip.name, "hexagon": chip.hexagon}
    words["vendor"] = manifest.vendor
    words["how"] = _MODULE.format(vision=_VISION if vision else "")
    words["files"] = words["runs"] = ""
    if not is_module:
        words["runs"] = _write_runner(program, manifest.target, folder)
        words["how"] = _LANGUAGE_MODEL
        words["files"] = "tokenizer.json   the tokenizer\n*.table          rows of codes\n"
    elif vision:
        words["files"] = "preprocessing.json, classes.txt\n"
    (folder / "README.txt").write_text(_README.format(**words))
    name = "".join(c if c.isalnum() or c in "-_." else "_" for c in program.path.stem)
    exact = "yes" if chip.soc_model else "no"
    script = folder / "push.sh"
    usual = "" if is_module else " [COMMAND [ARGUMENTS]]      # as run.sh takes them"
    script.write_text(_PUSH.format(name=name, chip=chip.name, exact=exact, usual=usual))
    script.chmod(0o755)
    return sorted(path.name for path in folder.iterdir())
