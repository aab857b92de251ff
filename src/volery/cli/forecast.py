"""The process behind a forecast: a question on standard input, read from the store, played in the lab, answered.

The API starts it for each forecast (see `volery.live.service.forecaster`). It is the last to get the processor.
"""

from __future__ import annotations

import os
import sqlite3
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from volery.live.service.forecast_inputs import ForecastReply, ForecastRequest

NICE: Final = 10


def main() -> None:
    os.nice(NICE)
    import msgspec

    from volery.live.service.forecast_inputs import ForecastRequest

    question = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=ForecastRequest)
    sys.stdout.buffer.write(msgspec.msgpack.encode(answer(question)))


def answer(question: ForecastRequest) -> ForecastReply:
    """The forecast of the lab for the state of a federation."""
    import msgspec

    from volery.architectures import lookup
    from volery.core.errors import InputError
    from volery.live.service.forecast_inputs import ForecastReply, UnplayableError, standing
    from volery.whatif.forks import forecast

    fleet, architecture = question.fleet(), lookup(question.architecture)
    config = msgspec.convert(question.parameters, type(architecture.defaults))
    try:
        state = standing(Path(question.store), fleet, question.nodes, question.job, question.lost)
    except (InputError, UnplayableError, sqlite3.Error) as error:
        return ForecastReply(0, 0, None, str(error))

    outlook = forecast(architecture, config, fleet.cluster, state, question.budget_s)
    return ForecastReply(state.at_us, state.questioned.number, outlook)


if __name__ == "__main__":
    main()
