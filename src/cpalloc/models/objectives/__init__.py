"""Every tier of the objective, by name; the request's policy orders them."""

from collections.abc import Mapping

from cpalloc.models.base import Objective
from cpalloc.models.objectives.delay import Delay
from cpalloc.models.objectives.fragmentation import Fragmentation
from cpalloc.models.objectives.idle import Idle
from cpalloc.models.objectives.inversion import Inversion
from cpalloc.models.objectives.lend import Lend
from cpalloc.models.objectives.locality import Locality
from cpalloc.models.objectives.preemption import Preemption
from cpalloc.models.objectives.shortfall import Shortfall
from cpalloc.models.objectives.starvation import Starvation

OBJECTIVES: Mapping[str, Objective] = {
    tier.name: tier
    for tier in (
        Starvation(),
        Shortfall(),
        Inversion(),
        Preemption(),
        Delay(),
        Idle(),
        Lend(),
        Fragmentation(),
        Locality(),
    )
}
