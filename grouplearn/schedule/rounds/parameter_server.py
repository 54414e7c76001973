"""A parameter server with bounded staleness: partitions push changes, and wait only for those that are far behind."""

from __future__ import annotations

from grouplearn.schedule.averages import Averages
from grouplearn.schedule.messages import Unit
from grouplearn.schedule.rounds.averaging import Averaging, rounds_of_epoch
from grouplearn.schedule.rounds.push_progress import PushProgress
from grouplearn.schedule.rounds.stages import Shares
from grouplearn.schedule.sharded.steps.products import Products
from grouplearn.schedule.sharded.steps.unit_progress import UnitProgress
from grouplearn.schedule.workload import Workload


class ParameterServer(Averaging):
    """Cuts the rows of every group as averaging does; each partition continues from the current model after its push.

    With ``workload.averages.staleness`` = 0, or when every epoch is evaluated, all partitions wait for each other in every
    round, and their pushes together are the mean: these are averaging's rounds, with the same models to the bit. Otherwise
    the models also depend on the order of pushes. Raises ValueError for learners that are not sequential.
    """

    name = "parameter_server"

    @staticmethod
    def _averages(workload: Workload) -> Averages:
        own = workload.averages
        staleness = 0 if workload.evaluate_epochs else own.staleness
        return Averages(own.partitions, batches=own.batches, staleness=staleness)

    @staticmethod
    def _split(unit: Unit, shares: Shares, workload: Workload, products: Products) -> UnitProgress:
        if not workload.averages.staleness:
            return Averaging._split(unit, shares, workload, products)
        return PushProgress(unit, shares, workload, products, rounds_of_epoch(shares.blocks, unit, workload))
