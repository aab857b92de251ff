"""Values of mapped columns: texts with units, decimal commas, time zones and formats of times.

A reader of a value raises ValueError with a noun phrase for what is wrong; the caller adds file, line and column.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any, Final, Literal
from zoneinfo import ZoneInfo

from volery.core.errors import InputError
from volery.workload.formats.source import AMOUNT_END, INSTANCES_MAX, epoch_us, microseconds, moment, priority, real
from volery.workload.table import RACK_WISHES

Kind = Literal["word", "words", "time", "duration", "count", "cores", "memory", "priority", "state", "rack"]

TIME_UNITS: Final = {
    "us": 1.0,
    "ms": 1e3,
    "s": 1e6,
    "min": 60e6,
    "h": 3600e6,
    "d": 86_400e6,
}
"""Microseconds in a unit of times and durations; a time in a unit counts from any origin, as 1970."""
AMOUNT_UNITS: Final = {
    "cores": {"one": 1000.0, "milli": 1.0, "percent": 10.0},
    "memory": {
        "B": 2.0**-20,
        "KiB": 2.0**-10,
        "MiB": 1.0,
        "GiB": 2.0**10,
        "TiB": 2.0**20,
        "kB": 1e3 / 2**20,
        "MB": 1e6 / 2**20,
        "GB": 1e9 / 2**20,
        "TB": 1e12 / 2**20,
    },
}
"""Our units, thousandths of a core or device and 2**20 bytes, in a unit of the source."""
LETTERS: Final = {"K": 2.0**-10, "M": 1.0, "G": 2.0**10, "T": 2.0**20, "P": 2.0**30}
"""2**20 bytes in the unit that a letter behind a number means, as Slurm writes it."""
MEMORY: Final = re.compile(r"([\d.,]+(?:[eE][+-]?\d+)?)\s*([KMGTP])(?:i?B)?", re.IGNORECASE)
CLOCK: Final = re.compile(r"(?:\d+:)?\d+:\d+(?:\.\d+)?|(\d+)-(\d+)(?::(\d+))?(?::(\d+(?:\.\d+)?))?")
"""`[hours:]minutes:seconds` or `days-hours[:minutes[:seconds]]`, as Slurm, PBS and LSF write durations."""
OFFSET: Final = re.compile(r"([+-])(\d\d):?(\d\d)")
TRIAL: Final = datetime(2001, 2, 3, 4, 5, 6, tzinfo=UTC)


def zone_of(name: str, place: str) -> tzinfo:
    """The time zone of a name of the IANA database, or of an offset.

    Raises:
        InputError: there is no such zone.
    """
    if name in ("UTC", "Z", "GMT"):
        return UTC
    if offset := OFFSET.fullmatch(name):
        ahead = timedelta(hours=int(offset[2]), minutes=int(offset[3]))
        if ahead < timedelta(days=1):
            return timezone(-ahead if offset[1] == "-" else ahead)

    try:
        return ZoneInfo(name)
    except (OSError, ValueError, KeyError):
        fix = "name one of the IANA database, as Europe/Berlin, or an offset, as +01:00"
        raise InputError(place, f"{name!r} is no time zone of this machine; {fix}") from None


def check_time_format(form: str, place: str) -> None:
    """Refuse a format of times that no time has.

    Raises:
        InputError: `strptime` does not take it.
    """
    try:
        datetime.strptime(TRIAL.strftime(form), form).replace(tzinfo=UTC)
    except ValueError as error:
        raise InputError(place, f"{form!r} is no format of a time ({error}); write one as %d.%m.%Y %H:%M:%S") from None


class Values:
    """Readers of values for a file with its decimal sign and its time zone.

    Args:
        decimal: character before the fraction of a number.
        zone: zone of times that state none.
    """

    def __init__(self, decimal: str, zone: tzinfo) -> None:
        self._decimal = decimal
        self.zone = zone

    def read(self, kind: Kind, text: str, unit: str = "", form: str = "") -> Any:
        """The value of a text.

        Raises:
            ValueError: it is none of that kind.
        """
        match kind:
            case "time":
                return self.time(text, unit, form)
            case "duration":
                return self.duration(text, unit)
            case "count":
                return self.count(text)
            case "cores":
                return self.cores(text, unit)
            case "memory":
                return self.memory(text, unit)
            case "priority":
                return self.priority(text)
            case "rack":
                return self.rack(text)
            case _:
                return text

    def number(self, text: str) -> float:
        """A number with the file's decimal sign.

        Raises:
            ValueError: it is none.
        """
        if self._decimal == ".":
            return real(text)
        if "." in text:
            raise ValueError(f"{text!r} is no number with a decimal {self._decimal!r}")
        try:
            return real(text.replace(self._decimal, "."))
        except ValueError:
            raise ValueError(f"{text!r} is no number") from None

    def time(self, text: str, unit: str, form: str, after_us: int | None = None) -> int:
        """A time in microseconds since 1970, or since the origin of a number.

        Args:
            after_us: a time before it; of an hour that the clock shows twice, the first moment not before that counts.

        Raises:
            ValueError: it is no time of that form.
        """
        if unit:
            return microseconds(self.number(text), TIME_UNITS[unit])
        if form:
            try:
                shown = datetime.strptime(text, form)
            except ValueError:
                raise ValueError(f"{text!r} is no time of the format {form!r}") from None
            return epoch_us(shown, self.zone, after_us)
        return moment(text, self.zone, after_us)

    def duration(self, text: str, unit: str) -> int:
        """A duration in microseconds: a number of units, or `[hours:]minutes:seconds` or `days-hours:minutes:seconds`.

        Args:
            unit: unit of a number; with `h`, a clock of two parts is `hours:minutes`, as LSF writes limits.

        Raises:
            ValueError: it is none, or a number whose unit the map does not state.
        """
        if clock := CLOCK.fullmatch(text):
            if clock[1]:
                days, hours, minutes, seconds = (float(part or 0) for part in clock.groups())
            else:
                parts = [*map(float, text.split(":")), *([0.0] if unit == "h" and text.count(":") == 1 else [])]
                days, (hours, minutes, seconds) = 0.0, [0.0, *parts][-3:]
            return microseconds(((days * 24 + hours) * 60 + minutes) * 60 + seconds)
        if not unit:
            raise ValueError(f'{text!r} is no duration as 1-02:03:04; state the unit of a number, as unit = "s"')
        value_us = microseconds(self.number(text), TIME_UNITS[unit])
        if value_us < 0:
            raise ValueError(f"{text!r} is no duration from 0")
        return value_us

    def count(self, text: str) -> int:
        """A whole number from 0.

        Raises:
            ValueError: it is none, or above ten million.
        """
        value = self.number(text)
        if not 0 <= value <= INSTANCES_MAX or value != int(value):
            raise ValueError(f"{text!r} is no whole number from 0 to {INSTANCES_MAX}")
        return int(value)

    def cores(self, text: str, unit: str) -> float:
        """Thousandths of cores or devices.

        Raises:
            ValueError: it is no amount.
        """
        return self._amount(text, self.number(text) * AMOUNT_UNITS["cores"][unit or "one"])

    def memory(self, text: str, unit: str) -> float:
        """2**20 bytes, of a number with a letter or in the unit of the map.

        Raises:
            ValueError: it is no amount, or a number whose unit nothing states.
        """
        if lettered := MEMORY.fullmatch(text):
            return self._amount(text, self.number(lettered[1]) * LETTERS[lettered[2].upper()])
        value = self.number(text)
        if not unit and value:
            raise ValueError(f'{text!r} states no unit of memory; state it in the map, as unit = "GiB"')
        return self._amount(text, value * AMOUNT_UNITS["memory"][unit or "MiB"])

    def priority(self, text: str) -> int:
        """A whole number; larger is more urgent.

        Raises:
            ValueError: it is none, or needs more than 31 bits.
        """
        return priority(str(self.number(text))) or 0

    @staticmethod
    def rack(text: str) -> str:
        """A word for the rack of a gang.

        Raises:
            ValueError: it is none.
        """
        if text.lower() not in RACK_WISHES:
            raise ValueError(f"{text!r} is none of {', '.join(RACK_WISHES)}")
        return text.lower()

    @staticmethod
    def _amount(text: str, value: float) -> float:
        if not 0 <= value < AMOUNT_END:
            raise ValueError(f"{text!r} is no amount from 0")
        return value
