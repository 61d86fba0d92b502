"""Programs of two or three organisations: each starts this file with its own name and its own numbers.

    python examples/float32/joint.py bob --cluster deployment/cluster.toml --certs deployment/certs

Here a client's numbers are made from its name, in place of a file that it would read. `--clear` plays all of
them in one process, without parties.
"""

import argparse

import numpy
from megrez import float32
from options import prices

SHAPES = {
    ("kmeans", "alice"): (5, 2),
    ("kmeans", "bob"): (4, 2),
    ("kmeans", "carol"): (3, 2),
    ("regression", "alice"): (8, 2),
    ("regression", "bob"): (8,),
    ("cholesky", "alice"): (5, 3),
    ("cholesky", "carol"): (3,),
    ("options", "alice"): (2, 3),
    ("options", "bob"): (2, 3),
    ("fft", "bob"): (64,),
    ("fft", "carol"): (64,),
}
"""What each client brings to each program."""


def kmeans(np, points, turns=2):
    """Two centres of points; the turns are fixed, as nobody may see whether they have settled."""
    centres = points[:2]
    for _ in range(turns):
        distances = ((points[:, None] - centres[None]) ** 2).sum(axis=2)
        nearest = distances <= distances.min(axis=1, keepdims=True)
        members = np.where(nearest, 1.0, 0.0)
        centres = (members[:, :, None] * points[:, None]).sum(axis=0) / members.sum(axis=0)[:, None]
    return centres


def regression(np, x, y, turns=2, rate=0.5):
    """Weights of a logistic regression after some steps down the gradient."""
    weights = numpy.zeros(2, numpy.float32)
    for _ in range(turns):
        wrong = np.sigmoid(x @ weights) - y if isinstance(weights, float32.Array) else 0.5 - y
        weights = weights - (rate / len(x)) * (x.T @ wrong)
    return weights


def cholesky(np, rows, right):
    """Solves (rows' rows + 1) z = right by the Cholesky decomposition."""
    matrix = rows.T @ rows + numpy.eye(3)
    n = len(matrix)
    low = [[None] * n for _ in range(n)]
    for i in range(n):
        for j in range(i + 1):
            rest = matrix[i, j]
            for k in range(j):
                rest = rest - low[i][k] * low[j][k]
            low[i][j] = np.sqrt(rest) if i == j else rest / low[j][j]
    half = []
    for i in range(n):
        rest = right[i]
        for k in range(i):
            rest = rest - low[i][k] * half[k]
        half.append(rest / low[i][i])
    solution = [None] * n
    for i in reversed(range(n)):
        rest = half[i]
        for k in range(i + 1, n):
            rest = rest - low[k][i] * solution[k]
        solution[i] = rest / low[i][i]
    return np.stack(solution)


def fft(np, real, imaginary):
    """The discrete Fourier transform of a power of two of complex numbers, as rows of both parts."""
    n = real.shape[-1]
    if n == 1:
        return np.stack([real, imaginary])
    even, odd = (fft(np, real[..., i::2], imaginary[..., i::2]) for i in (0, 1))
    angle = -2 * numpy.pi * numpy.arange(n // 2) / n
    c, s = numpy.cos(angle), numpy.sin(angle)
    turned = np.stack([odd[0] * c - odd[1] * s, odd[0] * s + odd[1] * c])
    return np.concatenate([even + turned, even - turned], axis=-1)


def numbers(program, client):
    """A client's numbers for a program: nobody else calls this for it."""
    generator = numpy.random.default_rng(sum(map(ord, program + client)))
    values = generator.uniform(0.5, 2, SHAPES[program, client]).astype(numpy.float32)
    return numpy.round(values - 0.5) % 2 if (program, client) == ("regression", "bob") else values


def run(pair, which):
    """All programs, or one: what this process learns of each."""
    results = {}

    def bring(program, client):
        mine = pair.client in (None, client)
        values = numbers(program, client) if mine else None
        return pair.array(values, owner=client, shape=SHAPES[program, client])

    def learn(program, made, to):
        results[program] = made.reveal(to=to)

    np = float32
    if "kmeans" in which:
        points = np.concatenate([bring("kmeans", client) for client in ("alice", "bob", "carol")])
        learn("kmeans", kmeans(np, points), to=["alice", "bob", "carol"])
    if "regression" in which:
        x, y = (bring("regression", client) for client in ("alice", "bob"))
        learn("regression", regression(np, x, y), to="bob")
    if "cholesky" in which:
        learn("cholesky", cholesky(np, bring("cholesky", "alice"), bring("cholesky", "carol")), to="bob")
    if "options" in which:
        spot, volatility = bring("options", "alice")
        strike, years = bring("options", "bob")
        worth = prices(np, spot, strike, 0.03, volatility, years)
        learn("options", worth, to=["alice", "bob"])
    if "fft" in which:
        learn("fft", fft(np, bring("fft", "bob"), bring("fft", "carol")), to="carol")
    return results


def main():
    """Run the programs as one of the clients."""
    names = list(dict.fromkeys(program for program, _ in SHAPES))
    parser = argparse.ArgumentParser()
    parser.add_argument("client", choices=["alice", "bob", "carol"])
    parser.add_argument("--cluster", default="cluster.toml")
    parser.add_argument("--certs", default="certs")
    parser.add_argument("--protocol", default="secfloat")
    parser.add_argument("--program", choices=names, action="append")
    parser.add_argument("--save", help="where to write what this client learns")
    parser.add_argument("--clear", action="store_true")
    given = parser.parse_args()
    which = given.program or names
    if given.clear:
        pair = float32.clear()
    else:
        pair = float32.connect(
            given.cluster, certs=given.certs, client=given.client, name="joint", protocol=given.protocol
        )
    with pair:
        results = run(pair, which)
    learnt = {program: result for program, result in results.items() if result is not None}
    for program, result in learnt.items():
        print(program, result, sep="\n")
    if given.save:
        numpy.savez(given.save, **learnt)


if __name__ == "__main__":
    main()
