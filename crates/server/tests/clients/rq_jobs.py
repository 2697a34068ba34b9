def add(one, two):
    return one + two


def fail():
    raise RuntimeError("as it should")
