"""Every hard rule, in one tuple."""

from cpalloc.models.base import Constraint
from cpalloc.models.constraints.capacity import Capacity
from cpalloc.models.constraints.domain import Domain
from cpalloc.models.constraints.eligibility import Eligibility
from cpalloc.models.constraints.floor import Floor
from cpalloc.models.constraints.funding import Funding
from cpalloc.models.constraints.gang import Gang
from cpalloc.models.constraints.holds import Holds
from cpalloc.models.constraints.limits import Limits
from cpalloc.models.constraints.preemption import Preemption
from cpalloc.models.constraints.protection import Protection
from cpalloc.models.constraints.spread import Spread

CONSTRAINTS: tuple[Constraint, ...] = (
    Capacity(),
    Gang(),
    Spread(),
    Eligibility(),
    Domain(),
    Protection(),
    Preemption(),
    Floor(),
    Limits(),
    Holds(),
    Funding(),
)
