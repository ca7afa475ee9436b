# SPDX-License-Identifier: MIT
from .api import Card as Card
from .api import Changed as Changed
from .api import Container as Container
from .api import Limits as Limits
from .api import Part as Part
from .api import Usage as Usage
from .api import cards as cards
from .api import container as container
from .api import containers as containers
from .api import create as create
from .api import destroy as destroy
from .api import events as events
from .api import park as park
from .api import resume as resume
from .api import set as set
from .api import set_policy as set_policy
from .api import usage as usage
from .errors import CgpuError as CgpuError
from .errors import ModuleNotLoaded as ModuleNotLoaded
from .errors import NodeError as NodeError
from .errors import PermissionDenied as PermissionDenied
from .errors import ProtocolError as ProtocolError
from .tree.events import Event as Event
from .tree.status import ProcessUsage as ProcessUsage

__version__: str
