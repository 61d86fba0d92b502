"""Option prices by Black and Scholes, between two parties: one knows the contracts, the other one the market.

The function is what NumPy code looks like anyway; `megrez.float32` takes NumPy's place.

    python examples/float32/options.py
"""

import numpy
from megrez import float32

COEFFICIENTS = (0.319381530, -0.356563782, 1.781477937, -1.821255978, 1.330274429)
"""Of the normal distribution's tail: Abramowitz and Stegun, 26.2.17."""


def normal(np, x):
    """The normal distribution function, within 10^-7."""
    t = 1 / (1 + 0.2316419 * abs(x))
    tail = 0.0
    for coefficient in reversed(COEFFICIENTS):
        tail = (tail + coefficient) * t
    tail = tail * np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi)
    return np.where(x > 0, 1 - tail, tail)


def prices(np, spot, strike, rate, volatility, years):
    """What the right to buy at `strike` in some years is worth now."""
    spread = volatility * np.sqrt(years)
    d = (np.log(spot / strike) + (rate + volatility**2 / 2) * years) / spread
    # Both arguments in one call: on shares, that is half of the rounds.
    likely = normal(np, np.stack([d, d - spread]))
    return spot * likely[0] - strike * np.exp(-rate * years) * likely[1]


def main() -> None:
    """Price some contracts, on shares and in the clear."""
    generator = numpy.random.default_rng(1)
    spot = generator.uniform(80, 120, 8).astype(numpy.float32)
    strike = generator.uniform(80, 120, 8).astype(numpy.float32)
    volatility = generator.uniform(0.1, 0.4, 8).astype(numpy.float32)
    years = generator.uniform(0.1, 2, 8).astype(numpy.float32)
    with float32.local() as pair:
        contracts = [pair.array(strike, owner=0), pair.array(years, owner=0)]
        market = [pair.array(spot, owner=1), pair.array(volatility, owner=1)]
        worth = prices(float32, market[0], contracts[0], 0.03, market[1], contracts[1]).reveal()
        cost = pair.cost
    print("on shares:   ", worth)
    print("in the clear:", prices(numpy, spot, strike, 0.03, volatility, years))
    print(f"{sum(cost.sent_bytes) / 1024:.0f} KiB, {cost.rounds} rounds, {cost.seconds:.2f} s")


if __name__ == "__main__":
    main()
