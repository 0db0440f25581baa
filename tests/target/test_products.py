"""The ways to sum products: every word is a row of its table, and every table has a row for each word."""

import typing

from jitonnx.target import products, tuning


def test_tables_have_each_way() -> None:
    ways = set(typing.get_args(products.IntegerProducts))
    assert ways == set(products.INTEGERS) == set(tuning.INTEGER_TASK_PRODUCTS)
    assert set(products.BFLOAT16) == set(typing.get_args(products.Bfloat16Products))
    assert set(typing.get_args(products.ByteDots)) < ways
