"""The routes of a broker: the modules of this room that have `ROUTES`."""

from __future__ import annotations

from typing import Final

from magicbyte.server.serving.routes import Routes
from magicbyte.server.settings.served import SERVED

BROKER_ROUTES: Final = Routes("magicbyte.server.apis", SERVED)
