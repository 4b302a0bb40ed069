"""The theorem widget alone in a real Chromium, against joints multiplied out with numpy."""

import itertools

import numpy as np
import pytest

pytest_plugins = ["tests.support.chromium", "tests.support.theorem"]
pytestmark = pytest.mark.browser

HANDS = {"high card": 0.25, "high pair": 0.15, "two pair": 0.1, "full house": 0.3,
         "straight flush": 0.2}  # fmt: skip
HAND_WORDS = (("high", "two", "full", "straight"), ("card", "pair", "house", "flush"))
EDGES = [(2, 33), (2, 34), (3, 25), (3, 26), (4, 20), (4, 21), (5, 16), (5, 17), (6, 14), (6, 15)]
SETTINGS = [(k, percent, part) for k, percent in EDGES for part in (0.0, 0.5, 1.0)]
SETTINGS += [(2, 60, 1.0), (6, 60, 1.0), (2, 1, 1.0), (3, 30, 0.8), (5, 40, 0.37)]


def family(k, percent, part):
    """Axis j is token j; independent tokens mixed with the theorem's one-hot construction."""
    epsilon = percent / 100
    one, none = 0.98 * epsilon, 1 - k * 0.98 * epsilon
    if (k + 1) * percent > 100:
        delta = min(1 / (k + 1), k * (epsilon - 1 / (k + 1))) / 2
        one, none = 1 / (k + 1) + delta / k, 1 / (k + 1) - delta
    tied = np.zeros((2,) * k)
    tied[(0,) * k] = none
    for j in range(k):
        tied[tuple(np.eye(k, dtype=int)[j])] = one
    return (1 - part) * product(tied) + part * tied


def product(joint):
    whole = np.ones(())
    for axis in range(joint.ndim):
        others = tuple(i for i in range(joint.ndim) if i != axis)
        whole = np.multiply.outer(whole, joint.sum(others))
    return whole


def named(joint, words, gap):
    """Name of every outcome to its place, in order."""
    places = itertools.product(*(range(n) for n in joint.shape))
    return {gap.join(words[j][i] for j, i in enumerate(place)): place for place in places}


def best(table, names):
    return "|".join(n for n, place in names.items() if table[place] > table.max() - 1e-12)


def chain(joint, names):
    prefix = ()
    while len(prefix) < joint.ndim:
        left = joint[prefix].reshape(joint.shape[len(prefix)], -1).sum(1)
        prefix += (int(left.argmax()),)
    return next(name for name, place in names.items() if place == prefix)


def compare(widget, joint, names, epsilon, safe):
    """Hold the widget to the brute-force account of `joint`."""
    data, rows = widget.data, widget.rows
    q, k = product(joint), joint.ndim
    tops = [joint.sum(tuple(i for i in range(k) if i != j)).max() for j in range(k)]
    assert all(top > 1 - epsilon for top in tops)
    assert list(rows) == list(names)
    for name, place in names.items():
        assert rows[name] == pytest.approx((joint[place], q[place]), abs=1e-12)
    assert data["pArgmax"] == best(joint, names)
    assert data["qArgmax"] == data["parallel"] == best(q, names)
    assert data["sequential"] == chain(joint, names)
    assert data["same"] == ("yes" if data["sequential"] == data["parallel"] else "no")
    assert data["guaranteed"] == ("yes" if safe else "no")
    tv = np.abs(joint - q).sum() / 2
    assert float(data["tv"]) == pytest.approx(tv, abs=1e-12)
    assert float(data["tvBound"]) == pytest.approx((3 * k - 1) * epsilon / 2, abs=1e-12)
    assert tv < float(data["tvBound"])
    return data


def test_every_setting_agrees_with_brute_force(widget):
    for k, percent, part in SETTINGS:
        widget.slide(k, percent, part)
        joint = family(k, percent, part)
        names = named(joint, ["01"] * k, "")
        safe = (k + 1) * percent <= 100
        data = compare(widget, joint, names, percent / 100, safe)
        if safe:
            assert data["pArgmax"] == data["qArgmax"] == data["sequential"] == "0" * k
        elif part == 1:
            assert "0" * k not in data["pArgmax"].split("|")
            assert data["same"] == "no"
        if part == 0:
            assert data["pArgmax"] == data["qArgmax"]
            assert float(data["tv"]) < 1e-12


def test_a_wrong_account_is_found(widget):
    widget.slide(3, 30, 0.8)
    joint = family(3, 30, 0.79)
    with pytest.raises(AssertionError):
        compare(widget, joint, named(joint, ["01"] * 3, ""), 0.3, False)


@pytest.mark.parametrize("k", range(2, 7))
def test_the_buttons_go_to_either_side_of_the_edge(widget, k):
    widget.page.locator("[data-in-k]").fill(str(k))
    for key, safe, beyond in (("inside", "yes", 0), ("outside", "no", 1)):
        widget.press(key)
        data = widget.data
        assert round(float(data["epsilon"]) * 100) == 100 // (k + 1) + beyond
        assert (data["guaranteed"], data["same"], data["dependency"]) == (safe, safe, "1")


def test_high_house_is_the_product_best_and_no_hand(widget):
    widget.press("house")
    joint = np.array([[HANDS.get(f"{a} {b}", 0.0) for b in HAND_WORDS[1]] for a in HAND_WORDS[0]])
    data = compare(widget, joint, named(joint, HAND_WORDS, " "), 0.71, False)
    assert data["parallel"] == "high house"
    assert data["pArgmax"] == "full house"
    assert widget.rows["high house"][0] == 0
    key = widget.page.locator("[data-key=house]")
    assert key.get_attribute("aria-pressed") == "true"
    widget.page.locator("[data-in-k]").press("ArrowRight")
    assert key.get_attribute("aria-pressed") == "false"
    assert widget.data["k"] == "4"


def test_words_say_what_is_guaranteed(widget):
    widget.slide(3, 25, 1.0)
    assert widget.verdict.startswith("Guaranteed: (k + 1)ε = 4 × 0.25 = 1.00 ≤ 1.")
    widget.slide(3, 26, 1.0)
    assert widget.verdict.startswith("Not guaranteed: (k + 1)ε = 4 × 0.26 = 1.04 > 1.")
    assert "Parallel decoding gives 000" in widget.verdict
    assert "one at a time 001" in widget.verdict
    widget.slide(3, 26, 0.0)
    assert "Here both ways still give 000" in widget.verdict


def test_the_sliders_answer_the_keyboard_without_the_server(widget):
    page, asked = widget.page, len(widget.watch.requests)
    page.locator("[data-in-epsilon]").focus()
    page.keyboard.press("ArrowRight")
    assert widget.data["epsilon"] == "0.31"
    page.keyboard.press("Home")
    assert widget.data["epsilon"] == "0.01"
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("End")
    assert widget.data["k"] == "6"
    assert len(widget.watch.requests) == asked


def test_everything_has_a_name(widget):
    snapshot = widget.page.locator("#ds-theorem").aria_snapshot()
    for name in (
        'slider "Tokens decoded in parallel, k"',
        'slider "Uncertainty allowed per token, ε"',
        'slider "Dependency between the tokens"',
        'button "Example “high house”"',
        'img "P and Q of the outcomes. Most probable in P: 001, 010, 100 (tie). In Q: 000.',
        'k = 3 is outside."',
        "status",
    ):
        assert name in snapshot
    assert "undefined" not in snapshot
