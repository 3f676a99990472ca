"""How the NPU is to be run, as Qualcomm's provider takes it: speed, memory, priority."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from satchel.errors import ConfigError

PERFORMANCE = (
    "burst",
    "sustained_high_performance",
    "high_performance",
    "balanced",
    "low_balanced",
    "high_power_saver",
    "power_saver",
    "low_power_saver",
    "extreme_power_saver",
    "default",
)
PRIORITIES = ("low", "normal", "normal_high", "high")
DOMAINS = ("unsigned", "signed")
MOST_VTCM_MB = 64
MOST_HVX_THREADS = 16


@dataclass(frozen=True)
class Settings:
    """``performance`` is the clocks' mode, ``vtcm_mb`` the NPU's fast memory that a graph is
    compiled for (None: all that the chip has), ``priority`` is beside other programs.
    ``process_domain`` is where the NPU runs it: a signed one takes libraries that the device's
    maker has signed, and ``hvx_threads`` how many of its vector threads a graph may use (None: as
    many as it likes). Runners of one's own can choose these two; Qualcomm's provider cannot be
    told."""

    performance: str = "burst"
    vtcm_mb: int | None = None
    priority: str = "normal"
    process_domain: str = "unsigned"
    hvx_threads: int | None = None

    def __post_init__(self) -> None:
        for name, value, known in (
            ("performance", self.performance, PERFORMANCE),
            ("priority", self.priority, PRIORITIES),
            ("process_domain", self.process_domain, DOMAINS),
        ):
            if value not in known:
                raise ConfigError(f"there is no {name} {value!r}", f"Use {', '.join(known)}.")
        for name, number, most in (
            ("vtcm_mb", self.vtcm_mb, MOST_VTCM_MB),
            ("hvx_threads", self.hvx_threads, MOST_HVX_THREADS),
        ):
            if number is not None and (not isinstance(number, int) or not 1 <= number <= most):
                raise ConfigError(f"{name} must be 1 to {most}, not {number!r}")

    def provider(self) -> dict[str, str]:
        """The execution provider's options.

        >>> Settings("balanced", 4).provider()["vtcm_mb"]
        '4'
        """
        size = {} if self.vtcm_mb is None else {"vtcm_mb": str(self.vtcm_mb)}
        return {
            "htp_performance_mode": self.performance,
            "qnn_context_priority": self.priority,
            **size,
        }

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))

    @staticmethod
    def read(document: Mapping[str, Any]) -> Settings:
        """From a manifest; what it does not say is as usual."""
        known = {name: document[name] for name in vars(Settings()) if name in document}
        return Settings(**known)
