"""merlin-models' optimizer of several, with ours among them and with all of its state."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import merlin.models.tf as mm
import tensorflow as tf
from tensorflow import keras

from merlin_embeddings import compat, optimizers


@keras.utils.register_keras_serializable(package="merlin_embeddings")
class MultiOptimizer(mm.MultiOptimizer):
    """`merlin.models.tf.MultiOptimizer` that takes our optimizers and keeps what it learned.

    ```python
    tables = mm.Embeddings(schema, dim=64, table_cls=mem.EmbeddingTable)
    big, small = mm.split_embeddings_on_size(tables, threshold=10_000)
    optimizer = mem.MultiOptimizer(
        [
            mm.OptimizerBlocks(me.optimizers.RowwiseAdagrad(0.02), big),
            mm.OptimizerBlocks(me.optimizers.Adagrad(0.02), small),
        ],
        default_optimizer="adam",
    )
    ```

    What differs from merlin-models' own:

    - An optimizer of this package stands in its place, as `optimizers.Legacy`; so does the name of
      one, as in "merlin_embeddings>Adagrad".
    - The default optimizer's variables, and those of optimizers that came by `update`, are among
      `weights` and are saved; a SavedModel's state is read again, the slots of Keras' legacy
      optimizers too.
    - A loaded model's variables go to the optimizers that they went to before. merlin-models' own
      loads copies of the blocks, which the loaded model hasn't, so that all its variables go to the
      default optimizer. Here the names of variables are kept in place of blocks.

    Args:
        optimizers_and_blocks: pairs; optimizers are names, ours, or Keras' legacy ones.
        default_optimizer: for all other variables.
        name: of the optimizer.
        **kwargs: of merlin-models' own.

    Raises:
        ValueError: an optimizer of another kind, and whatever merlin-models' own refuses; after
            loading, several variables with one name that optimizers had shared among them.
    """

    def __init__(
        self,
        optimizers_and_blocks: Sequence[mm.OptimizerBlocks],
        default_optimizer: Any = "rmsprop",
        name: str = "MultiOptimizer",
        **kwargs: Any,
    ) -> None:
        self._by_name: dict[str, int] = {}
        # Of Keras' optimizers; ours keep their own. Keras' slots can't be children of anything in a
        # SavedModel, copies of them can.
        self._state = compat.SavedState()
        self._copies: dict[Any, tf.Variable] = {}
        super().__init__(optimizers_and_blocks, default_optimizer, name, **kwargs)
        self._track_trackable(self.default_optimizer, name="default_optimizer")

    def _get_optimizer(self, optimizer: Any) -> Any:
        if isinstance(optimizer, str) and optimizer.startswith("merlin_embeddings>"):
            optimizer = keras.optimizers.get(optimizer)
        if isinstance(optimizer, compat.Optimizer):
            return optimizers.Legacy(optimizer)
        return super()._get_optimizer(optimizer)

    def update(self, optimizer_blocks: mm.OptimizerBlocks) -> None:
        """Gives blocks to another optimizer than they had.

        Args:
            optimizer_blocks: the optimizer, which may be one that is here already, and the blocks.
        """
        optimizer_blocks.optimizer = self._get_optimizer(optimizer_blocks.optimizer)
        super().update(optimizer_blocks)

    # Steps

    @tf.autograph.experimental.do_not_convert
    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple],
        name: str | None = None,
        experimental_aggregate_gradients: bool = True,
    ) -> tf.Operation | None:
        """A step of each optimizer on its variables.

        Args:
            grads_and_vars: (gradient or None, variable) pairs.
            name: for Keras' optimizers.
            experimental_aggregate_gradients: whether gradients of replicas are to be summed.

        Returns:
            An operation in graphs, which `LossScaleOptimizer` asks for; else None.
        """
        parts: dict[int, list[tuple]] = {}
        pairs = list(grads_and_vars)
        for pair, position in zip(pairs, self._positions([v for _, v in pairs]), strict=True):
            parts.setdefault(position, []).append(pair)
        everything = self._all_optimizers()
        self._read_state(parts)
        for position, own in parts.items():
            # A part without any gradient sits this step out; Keras' optimizers would raise.
            if any(gradient is not None for gradient, _ in own):
                everything[position].apply_gradients(
                    own,
                    name=name,
                    experimental_aggregate_gradients=experimental_aggregate_gradients,
                )
        return tf.no_op()

    def _positions(self, variables: Sequence[tf.Variable]) -> list[int]:
        """Of the optimizer in `_all_optimizers` that each variable goes to."""
        owners = self._owners()
        everything = self._all_optimizers()
        names = [variable.name for variable in variables]
        found = []
        for variable in variables:
            if variable.ref() in owners:
                position = _index(everything, owners[variable.ref()])
            elif variable.name in self._by_name:
                if names.count(variable.name) > 1:
                    raise ValueError(
                        f"{self.name}: the loaded model has {names.count(variable.name)} variables "
                        f"named '{variable.name}', so it isn't known which of them an optimizer "
                        "had. Give the layers names of their own, or make a new MultiOptimizer"
                    )
                position = self._by_name[variable.name]
            else:
                position = len(everything) - 1
            found.append(position)
        return found

    def _owners(self) -> dict[Any, Any]:
        """The optimizer of each variable of a block."""
        self.var_optimizer_dict: dict[Any, Any] = {}
        fill = self._get_trainable_variables_optimizer_dict
        fill(self.optimizers_and_blocks, require_disjoint=True)
        fill(self.update_optimizers_and_blocks, require_disjoint=False)
        return self.var_optimizer_dict

    def _all_optimizers(self) -> list:
        """Each optimizer once, the default one last."""
        pairs = [*self.optimizers_and_blocks, *self.update_optimizers_and_blocks]
        distinct: list = []
        for one in [pair.optimizer for pair in pairs]:
            if one is not self.default_optimizer and not any(one is other for other in distinct):
                distinct.append(one)
        return [*distinct, self.default_optimizer]

    # State

    @property
    def weights(self) -> list[tf.Variable]:
        """The variables of all optimizers, the default one's last."""
        return [weight for one in self._all_optimizers() for weight in one.variables()]

    def set_weights(self, weights: Sequence) -> None:
        """Sets them; the optimizers have to have their variables.

        Args:
            weights: arrays in the order of `weights`.

        Raises:
            ValueError: another number of arrays.
        """
        rest = list(weights)
        if len(rest) != len(self.weights):
            raise ValueError(
                f"{self.name}: set_weights: {len(self.weights)} variables, {len(rest)} arrays; "
                "optimizers make their variables in the first step"
            )
        for one in self._all_optimizers():
            count = len(one.variables())
            one.set_weights(rest[:count])
            rest = rest[count:]

    def _create_all_weights(self, var_list: Sequence[tf.Variable]) -> None:
        # What Keras calls before it reads the state from an .h5 file.
        everything = self._all_optimizers()
        positions = self._positions(var_list)
        for position in sorted(set(positions)):
            own = [v for v, at in zip(var_list, positions, strict=True) if at == position]
            everything[position]._create_all_weights(own)

    def _of_keras(self) -> list:
        return [one for one in self._all_optimizers() if not isinstance(one, optimizers.Legacy)]

    def _read_state(self, parts: dict[int, list[tuple]]) -> None:
        """Takes over the state of the SavedModel that this comes from, in the first step."""
        values = self._state.take()
        if not values:
            return
        with tf.init_scope():
            self._create_all_weights([v for own in parts.values() for _, v in own])
            for one in self._of_keras():
                count = len(one.variables())
                one.set_weights(values[:count])
                values = values[count:]

    def _trackable_children(self, save_type: str = "checkpoint", **kwargs: Any) -> dict[str, Any]:
        children = super()._trackable_children(save_type, **kwargs)
        if save_type == "savedmodel":
            weights = [weight for one in self._of_keras() for weight in one.variables()]
            children |= self._state.write([self._copy_of(weight) for weight in weights])
        return children

    def _copy_of(self, weight: tf.Variable) -> tf.Variable:
        with tf.init_scope():
            if weight.ref() not in self._copies:
                self._copies[weight.ref()] = tf.Variable(weight, trainable=False)
            self._copies[weight.ref()].assign(weight)
        return self._copies[weight.ref()]

    # Config

    def get_config(self) -> dict[str, Any]:
        """All optimizers, and the names of the variables that each has."""
        everything = self._all_optimizers()
        by_name = dict(self._by_name)
        for reference, one in self._owners().items():
            by_name[reference.deref().name] = _index(everything, one)
        return {
            "name": self.name,
            "optimizers": [keras.optimizers.serialize(one) for one in everything],
            "variables": by_name,
            **self._state.config(),
        }

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: dict[str, Any] | None = None
    ) -> MultiOptimizer:
        """The reverse of `get_config`.

        Args:
            config: from `get_config`.
            custom_objects: for classes that aren't registered.
        """
        everything = [
            keras.optimizers.deserialize(
                one, custom_objects=custom_objects, use_legacy_optimizer=True
            )
            for one in config["optimizers"]
        ]
        pairs = [mm.OptimizerBlocks(one, []) for one in everything[:-1]]
        optimizer = cls(pairs, everything[-1], name=config["name"])
        optimizer._by_name = dict(config["variables"])
        optimizer._state.find(config.get(compat.SAVED_STATE))
        return optimizer


def _index(some: Sequence, one: Any) -> int:
    return next(index for index, other in enumerate(some) if other is one)
