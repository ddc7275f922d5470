"""The rules once more in numpy: float64, from the papers and Keras' documentation."""

import types

import numpy as np

import merlin_embeddings as me


class Rule:
    """One rule, dense: rows without a gradient are left out by the caller.

    `step(w, g, s, h, t)` makes a step of the rows `w` in place: `g` their gradient, `s` their slots
    by name (changed in place), `h` the hyper-parameters with `lr` and `decay`, `t` the number of
    the step from 1. `slots`: name -> (starting value, whether a row has one).
    """

    own_decay = False

    def __init__(self, step, slots=None, own_decay=False, lr=0.1, **hyper):
        self.step = step
        self.slots = slots or {}
        self.own_decay = own_decay
        self.hyper = {"lr": lr, **hyper}

    def start(self, weights):
        return {
            name: np.full(len(weights) if per_row else weights.shape, fill, np.float64)
            for name, (fill, per_row) in self.slots.items()
        }

    def __call__(self, weights, gradient, state, rows, number, decay=0.0, l2=0.0, max_norm=None):
        """Updates `weights` and `state` in place at `rows`; `number` counts steps from 1."""
        h = types.SimpleNamespace(**self.hyper, decay=decay)
        w = weights[rows].copy()
        g = gradient[rows] + l2 * w
        s = {name: value[rows].copy() for name, value in state.items()}
        if not self.own_decay:
            w -= w * decay * h.lr
        self.step(w, g, s, h, number)
        if max_norm is not None:
            w *= np.minimum(1, max_norm / np.maximum(norm(w), 1e-30))
        weights[rows] = w
        for name, value in s.items():
            state[name][rows] = value


def norm(rows):
    return np.sqrt((rows**2).sum(1, keepdims=True))


def mean_square(g):
    return (g**2).mean(1)


def sgd(w, g, s, h, t):
    w -= h.lr * g


def momentum(w, g, s, h, t):
    s["velocity"] = h.momentum * s["velocity"] - h.lr * g
    w += s["velocity"]


def nesterov(w, g, s, h, t):
    s["velocity"] = h.momentum * s["velocity"] - h.lr * g
    w += h.momentum * s["velocity"] - h.lr * g


def adagrad(w, g, s, h, t):
    s["accumulator"] += g**2
    w -= h.lr * g / np.sqrt(s["accumulator"] + h.epsilon)


def rowwise_adagrad(w, g, s, h, t):
    s["accumulator"] += mean_square(g)
    w -= h.lr * g / (np.sqrt(s["accumulator"]) + h.epsilon)[:, None]


def moments(g, s, h, square):
    s["momentum"] = h.beta_1 * s["momentum"] + (1 - h.beta_1) * g
    s["velocity"] = h.beta_2 * s["velocity"] + (1 - h.beta_2) * square


def adam(w, g, s, h, t):
    moments(g, s, h, g**2)
    v = s["velocity"]
    if "velocity_hat" in s:
        v = s["velocity_hat"] = np.maximum(s["velocity_hat"], v)
    # Keras adds epsilon before the correction of v: "epsilon hat" of the paper.
    root = np.sqrt(v / (1 - h.beta_2**t)) + h.epsilon / np.sqrt(1 - h.beta_2**t)
    w -= h.lr * s["momentum"] / (1 - h.beta_1**t) / root


def direction(g, s, h, t, square):
    """m hat / (root of v hat + epsilon)."""
    moments(g, s, h, square)
    root = np.sqrt(s["velocity"] / (1 - h.beta_2**t)) + h.epsilon
    return s["momentum"] / (1 - h.beta_1**t) / (root if square.ndim == 2 else root[:, None])


def rowwise_adam(w, g, s, h, t):
    w -= h.lr * direction(g, s, h, t, mean_square(g))


def trusted(w, u, h):
    u = u + h.decay * w
    ratio = np.where(norm(w) * norm(u) > 0, norm(w) / np.maximum(norm(u), 1e-30), 1)
    w -= h.lr * ratio * u


def lamb(w, g, s, h, t):
    trusted(w, direction(g, s, h, t, g**2), h)


def rowwise_lamb(w, g, s, h, t):
    trusted(w, direction(g, s, h, t, mean_square(g)), h)


def lars(w, g, s, h, t):
    below = np.maximum(norm(g) + h.decay * norm(w), 1e-30)
    ratio = np.where(norm(w) * norm(g) > 0, h.coefficient * norm(w) / below, 1)
    s["velocity"] = h.momentum * s["velocity"] + h.lr * ratio * (g + h.decay * w)
    w -= s["velocity"]


def lion(w, g, s, h, t):
    w -= h.lr * np.sign(h.beta_1 * s["momentum"] + (1 - h.beta_1) * g)
    s["momentum"] = h.beta_2 * s["momentum"] + (1 - h.beta_2) * g


def rmsprop(w, g, s, h, t):
    s["velocity"] = h.rho * s["velocity"] + (1 - h.rho) * g**2
    square = s["velocity"]
    if "average_gradient" in s:
        s["average_gradient"] = h.rho * s["average_gradient"] + (1 - h.rho) * g
        square = square - s["average_gradient"] ** 2
    change = h.lr * g / np.sqrt(square + h.epsilon)
    if "momentum" in s:
        s["momentum"] = change = h.momentum * s["momentum"] + change
    w -= change


def rowwise_rmsprop(w, g, s, h, t):
    s["velocity"] = h.rho * s["velocity"] + (1 - h.rho) * mean_square(g)
    w -= h.lr * g / np.sqrt(s["velocity"] + h.epsilon)[:, None]


def ftrl(w, g, s, h, t):
    l2 = h.l2 + h.beta / (2 * h.lr)
    before, after = s["accumulator"] ** h.power, (s["accumulator"] + g**2) ** h.power
    s["linear"] += g + 2 * h.shrinkage * w - (after - before) / h.lr * w
    s["accumulator"] += g**2
    kept = np.clip(s["linear"], -h.l1, h.l1)
    w[:] = (kept - s["linear"]) / (after / h.lr + 2 * l2)


BETAS = {"beta_1": 0.9, "beta_2": 0.99, "epsilon": 1e-5}
MOMENTS = {"momentum": (0.0, False), "velocity": (0.0, False)}
ROWWISE_MOMENTS = {"momentum": (0.0, False), "velocity": (0.0, True)}


def pairs():
    """Each optimizer beside its numpy rule."""
    opt = me.optimizers
    velocity = {"velocity": (0.0, False)}
    found = {
        "sgd": (lambda **k: opt.SGD(0.1, **k), Rule(sgd)),
        "momentum": (
            lambda **k: opt.SGD(0.1, momentum=0.9, **k),
            Rule(momentum, velocity, momentum=0.9),
        ),
        "nesterov": (
            lambda **k: opt.SGD(0.1, momentum=0.9, nesterov=True, **k),
            Rule(nesterov, velocity, momentum=0.9),
        ),
        "adagrad": (
            lambda **k: opt.Adagrad(0.1, initial_accumulator_value=0.2, **k),
            Rule(adagrad, {"accumulator": (0.2, False)}, epsilon=1e-7),
        ),
        "rowwise_adagrad": (
            lambda **k: opt.RowwiseAdagrad(0.1, epsilon=1e-6, **k),
            Rule(rowwise_adagrad, {"accumulator": (0.0, True)}, epsilon=1e-6),
        ),
        "adam": (lambda **k: opt.Adam(0.1, **BETAS, **k), Rule(adam, MOMENTS, **BETAS)),
        "amsgrad": (
            lambda **k: opt.Adam(0.1, amsgrad=True, **BETAS, **k),
            Rule(adam, {**MOMENTS, "velocity_hat": (0.0, False)}, **BETAS),
        ),
        "rowwise_adam": (
            lambda **k: opt.RowwiseAdam(0.1, **BETAS, **k),
            Rule(rowwise_adam, ROWWISE_MOMENTS, **BETAS),
        ),
        "lamb": (lambda **k: opt.Lamb(0.1, **BETAS, **k), Rule(lamb, MOMENTS, True, **BETAS)),
        "rowwise_lamb": (
            lambda **k: opt.RowwiseLamb(0.1, **BETAS, **k),
            Rule(rowwise_lamb, ROWWISE_MOMENTS, True, **BETAS),
        ),
        "lars": (
            lambda **k: opt.Lars(0.1, momentum=0.8, trust_coefficient=0.5, **k),
            Rule(lars, velocity, True, momentum=0.8, coefficient=0.5),
        ),
        "lion": (
            lambda **k: opt.Lion(0.1, beta_1=0.8, **k),
            Rule(lion, {"momentum": (0.0, False)}, beta_1=0.8, beta_2=0.99),
        ),
        "rowwise_rmsprop": (
            lambda **k: opt.RowwiseRMSprop(0.1, rho=0.8, epsilon=1e-5, **k),
            Rule(rowwise_rmsprop, {"velocity": (0.0, True)}, rho=0.8, epsilon=1e-5),
        ),
    }
    for name, own, slots in (
        ("rmsprop", {}, ["velocity"]),
        ("rmsprop_momentum", {"momentum": 0.7}, ["velocity", "momentum"]),
        ("rmsprop_centered", {"centered": True}, ["velocity", "average_gradient"]),
        (
            "rmsprop_centered_momentum",
            {"momentum": 0.7, "centered": True},
            ["velocity", "momentum", "average_gradient"],
        ),
    ):
        found[name] = (
            lambda own=own, **k: opt.RMSprop(0.1, rho=0.8, epsilon=1e-3, **own, **k),
            Rule(rmsprop, dict.fromkeys(slots, (0.0, False)), rho=0.8, epsilon=1e-3, momentum=0.7),
        )
    for name, power in (("ftrl", 0.5), ("ftrl_power", 0.75)):
        found[name] = (
            lambda power=power, **k: opt.Ftrl(
                0.1,
                learning_rate_power=-power,
                initial_accumulator_value=0.3,
                l1_regularization_strength=0.2,
                l2_regularization_strength=0.1,
                l2_shrinkage_regularization_strength=0.05,
                beta=0.5,
                **k,
            ),
            Rule(
                ftrl,
                {"accumulator": (0.3, False), "linear": (0.0, False)},
                power=power,
                l1=0.2,
                l2=0.1,
                shrinkage=0.05,
                beta=0.5,
            ),
        )
    return found
