"""Users with a table of their own, and users who are what they met: to retrieve and to rank."""

from tensorflow import keras
from youtube_dnn_data import PADDING, Samples, Sequences

import merlin_embeddings as me

POOLINGS = {
    "mean of items": lambda: "mean",
    "recency-weighted items": lambda: me.layers.RecencyWeighted(half_life=5, learned=True),
    "attention over items": lambda: me.layers.AttentionPooling(),
}
TABLE = "table of users"
NEGATIVES, DIM, RANKING_DIM = 200, 32, 16


def table_of_items(sequences: Sequences, dim: int) -> me.layers.Embedding:
    return me.layers.Embedding(
        sequences.rows,
        dim,
        me.initializers.Normal(stddev=0.1),
        padding_id=PADDING,
        name="items",
    )


def table_of_users(sequences: Sequences, dim: int) -> me.layers.Embedding:
    initializer = me.initializers.Normal(stddev=0.1)
    return me.layers.Embedding(sequences.users, dim, initializer, name="users")


def symbols(samples: Samples) -> dict:
    """The inputs of all models."""
    length = samples.history.shape[1]
    return {
        "user": keras.Input((), dtype="int64", name="user"),
        "history": keras.Input((length,), dtype="int64", name="history"),
        "disliked": keras.Input((length,), dtype="int64", name="disliked"),
        "item": keras.Input((), dtype="int64", name="item"),
    }


def inputs_of(model: keras.Model, samples: Samples, liked: bool) -> dict:
    """What a model takes of the samples; `liked`: the history is the films that were liked."""
    of = {
        "user": samples.user,
        "history": samples.history * samples.liked if liked else samples.history,
        "disliked": samples.history * ~samples.liked,
        "item": samples.item,
    }
    return {name: of[name] for name in model.input}


def retrieval(kind: str, sequences: Sequences, seed: int) -> tuple[keras.Model, keras.Model]:
    """A model that trains (user and next item to logits), and its tower (user to vector)."""
    keras.utils.set_random_seed(seed)
    items, inputs = table_of_items(sequences, DIM), symbols(sequences.train)
    if kind == TABLE:
        source, layer = "user", table_of_users(sequences, DIM)
    else:
        source, layer = "history", me.layers.UserFromItems(items, POOLINGS[kind](), name="user")
    user = layer(inputs[source])
    sampler = me.layers.samplers.LogUniform(NEGATIVES, first=PADDING + 1)
    logits = me.layers.SampledSoftmax(items, sampler, name="softmax")(user, inputs["item"])
    model = keras.Model({name: inputs[name] for name in (source, "item")}, logits)
    model.compile(
        me.optimizers.Adam(0.003), keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    )
    return model, keras.Model({source: inputs[source]}, user)


def ranking(kind: str, sequences: Sequences, seed: int) -> keras.Model:
    """The probability that a user likes a film, from the user and the film alone."""
    keras.utils.set_random_seed(seed)
    items, inputs = table_of_items(sequences, RANKING_DIM), symbols(sequences.train)
    item = items(inputs["item"])
    if kind == TABLE:
        sources = ["user"]
        users = [table_of_users(sequences, RANKING_DIM)(inputs["user"])]
    else:
        sources = ["history", "disliked"]
        pools = [
            me.layers.UserFromItems(items, me.layers.TargetAttention((32,)), name=f"user_{name}")
            for name in sources
        ]
        users = [pool(inputs[name], query=item) for name, pool in zip(sources, pools, strict=True)]
    products = [keras.layers.Multiply()([user, item]) for user in users]
    x = keras.layers.Concatenate()([*users, *products, item])
    x = keras.layers.Dense(64, "relu")(keras.layers.Dropout(0.2)(x))
    like = keras.layers.Dense(1, "sigmoid", name="like")(x)
    model = keras.Model({name: inputs[name] for name in [*sources, "item"]}, like)
    model.compile(me.optimizers.Adam(0.002), "binary_crossentropy")
    return model


def bytes_of(model: keras.Model) -> int:
    """Of the tables, as float32."""
    tables = [variable for variable in model.weights if me.tables.table_of(variable)]
    return sum(4 * int(variable.shape[0]) * int(variable.shape[1]) for variable in tables)
