"""People of a census that never was, and who of them earns much; nothing is downloaded."""

import numpy as np

OCCUPATIONS = ["clerk", "craftsman", "doctor", "driver", "engineer", "farmer", "teacher"]
_WORTH = np.array([-0.8, 0.0, 2.2, -0.6, 1.6, -1.2, 0.4])


def make_people(count, seed):
    """Returns columns of `count` people by their names, and 1 for each of them who earns much, else 0."""
    random = np.random.RandomState(seed)
    age = random.randint(18, 75, count)
    years = random.randint(8, 21, count)
    hours = np.clip(random.normal(38, 10, count), 5, 80)
    occupation = random.randint(0, len(OCCUPATIONS), count)
    experience = 1.5 - ((age - 48) / 15.0) ** 2
    worth = 0.9 * (years - 14) + 0.12 * (hours - 38) + 2 * _WORTH[occupation] + 1.5 * experience
    columns = {
        "age": age.astype("float32"),
        "years_of_education": years.astype("float32"),
        "hours_a_week": hours.astype("float32"),
        "occupation": np.array(OCCUPATIONS)[occupation],
    }
    return columns, (worth + random.normal(0, 0.4, count) > 0).astype("int32")
