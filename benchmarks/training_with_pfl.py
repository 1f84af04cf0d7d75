"""A round of client training in pfl-research, as one writes it there.

Used by `training_ways`. A torch module around the weights of the CIFG language model,
FedAvg on pfl's simulated backend, and users' sentences padded when it is their turn.
pfl and torch are no dependencies of this project, and imported where they are used.
"""

import importlib.metadata
import importlib.util
import multiprocessing
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from federated_hh.populations import vocabulary

if TYPE_CHECKING:
    import numpy as np

# The packages, and those of their requirements that are not locked here.
REQUIREMENTS = (
    "torch==2.13.0+cpu",
    "pfl==0.6.0",
    "dill==0.4.1",
    "fsspec==2026.9.0",
    "multiprocess==0.70.19",
    "networkx==3.6.1",
    "prv-accountant==0.2.0",
    "sympy==1.14.0",
    "typing-extensions==4.16.0",
)
_PACKAGES = ("torch", "pfl")


def missing() -> list[str]:
    """Returns the names of torch and pfl that are not installed."""
    return [name for name in _PACKAGES if importlib.util.find_spec(name) is None]


def versions() -> dict[str, str]:
    """Returns the versions of torch and pfl, if they are installed, by name."""
    return {
        name: importlib.metadata.version(name)
        for name in _PACKAGES
        if name not in missing()
    }


def module(weights: Mapping[str, "np.ndarray"]) -> Any:
    """Returns the model of `model.cifg_language_model` as a torch module.

    Args:
        weights: The model's, by name: float32.

    Returns:
        A module with parameters of the same names and shapes. Called with tokens (int64
        [batch, time]) it returns logits, float32 [batch, time, num_tokens]; its `loss`
        takes inputs and targets, and returns the mean cross entropy in nats over the
        places that are not padding, at least one.

    Raises:
        ImportError: If torch is not installed.
    """
    import torch
    from torch.nn import functional

    class Cifg(torch.nn.Module):
        def __init__(self):
            super().__init__()
            for name, weight in weights.items():
                self.register_parameter(name, torch.nn.Parameter(torch.tensor(weight)))

        def forward(self, tokens):
            units = len(self.projection)
            inputs = functional.embedding(tokens, self.input_embedding)
            arriving = functional.linear(inputs, self.input_kernel.t(), self.gate_bias)
            cell = arriving.new_zeros(len(tokens), units)
            hidden: list[torch.Tensor] = []
            for gates in arriving.unbind(1):
                if hidden:
                    gates = torch.addmm(gates, hidden[-1], self.recurrent_kernel)
                opening, proposed = gates.split([2 * units, units], dim=1)
                forget, out = opening.sigmoid().chunk(2, dim=1)
                cell = torch.lerp(proposed.tanh(), cell, forget)
                hidden.append((out * cell.tanh()) @ self.projection)
            return functional.linear(
                torch.stack(hidden, dim=1), self.output_embedding, self.output_bias
            )

        def loss(self, inputs, targets):
            return functional.cross_entropy(
                self(inputs).flatten(0, 1),
                targets.flatten(),
                ignore_index=vocabulary.PAD,
            )

        @torch.no_grad()
        def metrics(self, inputs, targets):
            from pfl import metrics

            places = int((targets != vocabulary.PAD).sum())
            total = float(self.loss(inputs, targets)) * places
            return {"loss": metrics.Weighted(total, places)}

    return Cifg()


def rounds(
    weights: Mapping[str, "np.ndarray"],
    clients: Sequence,
    padded: Callable[[Any], "np.ndarray"],
    batch_size: int,
    rate: float,
    num_threads: int,
) -> Callable[[], dict[str, "np.ndarray"]]:
    """Returns a function that trains every client once from these weights.

    Args:
        weights: See `module`.
        clients: Clients, at least one.
        padded: Given one of them, returns its sentences: int32 [sentences, time + 1],
            inputs and the target after the last one.
        batch_size: Sentences of a batch.
        rate: The learning rate of the clients' SGD, over one epoch.
        num_threads: The threads of a torch operation, at least 1.

    Returns:
        A function that returns the sum of the clients' updates by the weights' names.

    Raises:
        ImportError: If pfl or torch is not installed.
    """
    # OpenMP's threads that wait would else take processor time, several times that of
    # the work where the machine has other work too; read when torch is first imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    # pfl takes a process of another name for one that only loads its data.
    multiprocessing.current_process().name = "MainProcess"
    import torch
    from pfl import algorithm, hyperparam
    from pfl.aggregate import simulate
    from pfl.common_types import Population
    from pfl.context import CentralContext
    from pfl.data import dataset, federated_dataset, sampling
    from pfl.model import pytorch

    torch_module = module(weights)
    model = pytorch.PyTorchModel(
        torch_module,
        local_optimizer_create=torch.optim.SGD,
        central_optimizer=torch.optim.SGD(torch_module.parameters(), lr=1.0),
    )

    def user(number: int):
        rows = torch.from_numpy(padded(clients[number])).long()
        return dataset.Dataset((rows[:, :-1], rows[:, 1:]), user_id=str(number))

    users = federated_dataset.FederatedDataset(
        user, sampling.get_user_sampler("minimize_reuse", range(len(clients)))
    )
    backend = simulate.SimulatedBackend(training_data=users, val_data=users)
    averaging = algorithm.FederatedAveraging()
    # Evaluation, which pfl would do on each client before and after, is left out.
    context = CentralContext(
        current_central_iteration=1,
        do_evaluation=False,
        cohort_size=len(clients),
        population=Population.TRAIN,
        model_train_params=hyperparam.NNTrainHyperParams(
            local_num_epochs=1, local_learning_rate=rate, local_batch_size=batch_size
        ),
        model_eval_params=None,
        algorithm_params=algorithm.NNAlgorithmParams(
            central_num_iterations=2,
            evaluation_frequency=2,
            train_cohort_size=len(clients),
            val_cohort_size=None,
        ),
        seed=1,
    )

    def train() -> dict[str, "np.ndarray"]:
        torch.set_num_threads(num_threads)
        sums, _ = backend.gather_results(model, averaging, central_context=context)
        return {name: part.numpy() for name, part in sums.items()}

    return train
