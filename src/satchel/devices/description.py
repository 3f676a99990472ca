"""What a device is and how it is doing, by a script of plain shell that only reads."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field
from typing import Any

# Prints `KEY<tab>VALUE` lines; what the device does not tell has no line, or no value.
SCRIPT = r"""
say() { printf '%s\t%s\n' "$1" "$2"; }
first() { for f in "$@"; do [ -r "$f" ] && tr -d '\0' < "$f" | head -n 1 && return; done; }
property() { command -v getprop > /dev/null && getprop "$1"; }
say machine "$(uname -m)"
say system "$(uname -sr)"
say android "$(property ro.build.version.release)"
say model "$(property ro.product.manufacturer) $(property ro.product.model)"
say model "$(first /proc/device-tree/model /sys/class/dmi/id/product_name)"
say soc "$(property ro.soc.model)"
say soc "$(property ro.board.platform)"
say soc "$(first /sys/devices/soc0/machine)"
say soc "$(sed -n 's/^model name[^:]*: *//p; s/^Hardware[^:]*: *//p' /proc/cpuinfo | head -n 1)"
say soc "$(tr '\0' '\n' < /proc/device-tree/compatible | tail -n 1)"
say cores "$(nproc)"
cat /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor | sort -u |
  while read -r name; do say governor "$name"; done
while read -r name value unit; do
  case $name in MemTotal: | MemAvailable:) say "$name" "$value" ;; esac
done < /proc/meminfo
for zone in /sys/class/thermal/thermal_zone*; do
  [ -r "$zone/temp" ] && say temperature "$(first "$zone/temp") $(first "$zone/type")"
done
for supply in /sys/class/power_supply/*; do
  [ "$(first "$supply/type")" = Battery ] && [ -r "$supply/capacity" ] &&
    say battery "$(first "$supply/capacity") $(first "$supply/status")"
done
if command -v dumpsys > /dev/null; then
  dumpsys thermalservice |
    sed -n 's/.*Temperature{mValue=\([0-9.]*\), mType=[-0-9]*, mName=\([^,]*\),.*/degrees\t\1 \2/p'
  dumpsys battery | sed -n 's/^ *level: *\([0-9]*\).*/battery\t\1/p'
fi
exit 0
"""

_COLDEST, _HOTTEST = -40.0, 150.0  # what sensors that are not there say lies outside of this


@dataclass(frozen=True)
class Condition:
    """What changes while a device works; None where it does not tell."""

    temperature_c: float | None = None  # of its hottest sensor
    temperatures_c: dict[str, float] = field(default_factory=dict)
    battery_percent: int | None = None
    battery_status: str | None = None
    memory_available_bytes: int | None = None


@dataclass(frozen=True)
class Description:
    """What a device is; None where it does not tell."""

    name: str
    machine: str  # as uname calls it: aarch64, x86_64
    system: str
    model: str | None
    soc: str | None
    cores: int | None
    governor: str | None
    memory_bytes: int | None
    condition: Condition

    def to_dict(self) -> dict[str, Any]:
        """All of it but the condition, for a JSON document."""
        named = asdict(self)
        del named["condition"]
        return named


def parse_description(name: str, text: str) -> Description:
    """What :data:`SCRIPT` printed.

    >>> parse_description("ssh:pi", "machine\\taarch64\\nmodel\\t \\nmodel\\tRaspberry Pi 5").model
    'Raspberry Pi 5'
    """
    told: dict[str, list[str]] = {}
    for line in text.splitlines():
        key, _, value = line.partition("\t")
        if value.strip():
            told.setdefault(key, []).append(" ".join(value.split()))

    def first(key: str) -> str | None:
        return told.get(key, [None])[0]

    android = first("android")
    battery = (first("battery") or "").split(maxsplit=1)
    temperatures = _temperatures(told)
    return Description(
        name=name,
        machine=first("machine") or "",
        system=f"Android {android}, {first('system')}" if android else first("system") or "",
        model=first("model"),
        soc=first("soc"),
        cores=_whole(first("cores")),
        governor=", ".join(told.get("governor", [])) or None,
        memory_bytes=_kilobytes(first("MemTotal:")),
        condition=Condition(
            temperature_c=max(temperatures.values(), default=None),
            temperatures_c=temperatures,
            battery_percent=_whole(battery[0]) if battery else None,
            battery_status=battery[1] if len(battery) > 1 else None,
            memory_available_bytes=_kilobytes(first("MemAvailable:")),
        ),
    )


def _temperatures(told: dict[str, list[str]]) -> dict[str, float]:
    """Linux counts thousandths of a degree; some drivers whole degrees; Android's service those."""
    found: dict[str, float] = {}
    for key in ("temperature", "degrees"):
        for line in told.get(key, []):
            number, _, sensor = line.partition(" ")
            if not re.fullmatch(r"-?\d+(\.\d+)?", number):
                continue
            value = float(number)
            if key == "temperature" and abs(value) > _HOTTEST:
                value /= 1000
            if _COLDEST < value < _HOTTEST and value != 0:
                sensor = sensor or "sensor"
                found[sensor] = max(value, found.get(sensor, value))
    return found


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdigit() else None


def _kilobytes(text: str | None) -> int | None:
    number = _whole(text)
    return None if number is None else number * 1024
