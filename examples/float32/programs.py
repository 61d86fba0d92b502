"""Programs in NumPy's words that run on shares as they are: clusters, regressions, a Fourier transform.

Each takes the library first: `numpy` for numbers in the clear, `megrez.float32` for secrets.

    python examples/float32/programs.py
"""

import numpy
from megrez import float32


def kmeans(np, points, centres, turns=2):
    """The centres after some turns of Lloyd's algorithm; one without points stays where it is."""
    for _ in range(turns):
        distances = ((points[:, None] - centres) ** 2).sum(axis=-1)
        mine = np.argmin(distances, axis=1)[:, None] == numpy.arange(len(centres))
        total = np.where(mine[:, :, None], points[:, None], 0).sum(axis=0)
        count = mine.sum(axis=0)[:, None]
        centres = np.where(count > 0, total / count, centres)
    return centres


def logistic(np, x, y, turns=2, rate=0.5):
    """The weights of logistic regression after some steps down the gradient."""
    weights = np.zeros_like(x[0])
    for _ in range(turns):
        likely = 1 / (1 + np.exp(-(x @ weights)))
        weights -= rate * (x.T @ (likely - y)) / len(y)
    return weights


def least_squares(np, x, y):
    """Solve the normal equations by Cholesky's triangle."""
    lower = np.linalg.cholesky(x.T @ x)
    known = np.linalg.solve(lower, x.T @ y)
    return np.linalg.solve(lower.T, known)


def fft(np, real, imaginary):
    """The Fourier transform of 2^k points, by decimation in time: k steps."""
    n = len(real)
    reverse = [int(f"{i:0{n.bit_length() - 1}b}"[::-1], 2) for i in range(n)]
    real, imaginary = real[reverse], imaginary[reverse]
    size = 2
    while size <= n:
        angles = -2 * numpy.pi * numpy.arange(size // 2) / size
        cosine, sine = numpy.cos(angles).astype("float32"), numpy.sin(angles).astype("float32")
        (even, odd), (even_i, odd_i) = (
            numpy.split(part.reshape(-1, size), 2, axis=1) for part in (real, imaginary)
        )
        turned, turned_i = odd * cosine - odd_i * sine, odd * sine + odd_i * cosine
        real = np.concatenate([even + turned, even - turned], axis=1).ravel()
        imaginary = np.concatenate([even_i + turned_i, even_i - turned_i], axis=1).ravel()
        size *= 2
    return np.stack([real, imaginary])


def inputs():
    """What the parties bring to each program."""
    generator = numpy.random.default_rng(1)
    clouds = generator.normal(size=(8, 2)) + numpy.repeat([[0, 0], [3, 3]], 4, axis=0)
    features = generator.normal(size=(8, 3))
    labels = features[:, 0] > features[:, 1]
    wave = numpy.cos(2 * numpy.pi * 5 * numpy.arange(64) / 64)
    given = {
        kmeans: (clouds, clouds[:2]),
        logistic: (features, labels),
        least_squares: (features, features @ [1, 2, 3]),
        fft: (wave, numpy.zeros(64)),
    }
    return {program: [numpy.float32(x) for x in values] for program, values in given.items()}


def main():
    """Run all on shares and in the clear, and compare."""
    for program, (mine, yours) in inputs().items():
        with float32.local() as pair, float32.clear() as nobody:
            result = program(float32, pair.array(mine, owner=0), pair.array(yours, owner=1)).reveal()
            clear = program(float32, nobody.array(mine, owner=0), nobody.array(yours, owner=1)).reveal()
            cost = pair.cost
        assert result.tobytes() == clear.tobytes(), "the same bits"
        apart = numpy.abs(result - program(numpy, mine, yours)).max()
        megabytes = sum(cost.sent_bytes) / 2**20
        print(
            f"{program.__name__:14}{megabytes:7.2f} MiB {cost.rounds:6} rounds {cost.seconds:6.2f} s,"
            f" {apart:.1e} from NumPy"
        )


if __name__ == "__main__":
    main()
