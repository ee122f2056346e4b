"""What stands in for mathematics where no text of it is given?

Worked lines of arithmetic and algebra from a seed, with next to no words. They are generated, know
few forms, and say nothing about mathematics as people write it: a corpus that holds them says so.
"""

import numpy as np

from jaxfeat.types import check_whole

PROBLEMS = 40  # of a document unless told otherwise


def worked_maths(seed: int, number: int, problems: int = PROBLEMS) -> str:
    """Document `number` of a seed: problems worked out, one a paragraph, every line true.

    >>> worked_maths(0, 0, 1) == worked_maths(0, 0, 1), worked_maths(0, 0) == worked_maths(0, 1)
    (True, False)
    """
    check_whole("problems", problems, 1)
    rng = np.random.default_rng((check_whole("seed", seed, 0), check_whole("number", number, 0)))
    draw = lambda low, high: int(rng.integers(low, high + 1))
    forms = (_linear, _quadratic, _derivative, _sum, _product, _remainder, _power)
    return "\n\n".join(forms[draw(0, len(forms) - 1)](draw) for _ in range(problems))


def _signed(value: int) -> str:
    """A number with its sign before it, as it is added."""
    return f"+ {value}" if value >= 0 else f"- {-value}"


def _linear(draw) -> str:
    """A linear equation solved."""
    a, b, x = draw(2, 12), draw(-20, 20), draw(-12, 12)
    right = a * x + b
    return f"{a}x {_signed(b)} = {right}\n{a}x = {right} {_signed(-b)} = {a * x}\nx = {x}"


def _quadratic(draw) -> str:
    """A quadratic equation by its factors."""
    p, q = sorted((draw(-9, 9), draw(-9, 9)))
    left = f"x^2 {_signed(-p - q)}x {_signed(p * q)}"
    return (
        f"\\[ {left} = (x {_signed(-p)})(x {_signed(-q)}) \\]\n\\[ x_1 = {p}, \\quad x_2 = {q} \\]"
    )


def _derivative(draw) -> str:
    """A polynomial's derivative."""
    a, n, b = draw(2, 9), draw(3, 7), draw(2, 9)
    return (
        f"\\[ \\frac{{d}}{{dx}} \\left( {a}x^{n} + {b}x^2 \\right) = "
        f"{a * n}x^{n - 1} + {2 * b}x \\]"
    )


def _sum(draw) -> str:
    """An arithmetic sum."""
    n = draw(5, 99)
    value = n * (n + 1) // 2
    return f"\\sum_{{k=1}}^{{{n}}} k = \\frac{{{n} \\cdot {n + 1}}}{{2}} = {value}"


def _product(draw) -> str:
    """A product by tens and ones."""
    a, b = draw(12, 99), draw(12, 99)
    tens, ones = b // 10 * 10, b % 10
    return f"{a} * {b} = {a} * {tens} + {a} * {ones} = {a * tens} + {a * ones} = {a * b}"


def _remainder(draw) -> str:
    """A division with remainder."""
    a, b = draw(50, 999), draw(3, 29)
    return f"{a} = {b} * {a // b} + {a % b}\n{a} \\equiv {a % b} \\pmod{{{b}}}"


def _power(draw) -> str:
    """A binomial square."""
    a, b = draw(2, 9), draw(1, 9)
    square = f"{a * a}x^2 + {2 * a * b}x + {b * b}"
    return f"({a}x + {b})^2 = ({a}x)^2 + 2 * {a}x * {b} + {b}^2 = {square}"
