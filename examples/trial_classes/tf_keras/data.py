"""Short reviews of restaurants, put together from words; nothing is downloaded."""

import numpy as np

WORDS = {
    "good": ["tasty", "fresh", "friendly", "lovely", "warm", "generous", "quick", "superb"],
    "bad": ["stale", "bland", "rude", "cold", "greedy", "slow", "burnt", "dirty"],
    "subjects": ["soup", "bread", "waiter", "terrace", "coffee", "dessert", "fish", "menu", "bill", "music"],
    "filler": ["the", "was", "and", "we", "found", "our", "quite", "really", "a", "with"],
}
VOCABULARY = ["", *sorted(word for words in WORDS.values() for word in words)]
LENGTH = 16


def make_reviews(count, seed):
    """Returns `count` reviews, shape (count, LENGTH), numbers of words and 0 at the end; and which of them are good."""
    random = np.random.RandomState(seed)
    numbers = {word: number for number, word in enumerate(VOCABULARY)}
    reviews, labels = np.zeros((count, LENGTH), "int32"), np.zeros((count, 1), "float32")
    for row in range(count):
        is_good = random.rand() < 0.5
        words = []
        # Three opinions; one of ten is not that of the whole review.
        for _ in range(3):
            opinion = is_good if random.rand() < 0.9 else not is_good
            words += [random.choice(WORDS["filler"]), random.choice(WORDS["subjects"]), random.choice(WORDS["filler"])]
            words.append(random.choice(WORDS["good" if opinion else "bad"]))
        reviews[row, : len(words)] = [numbers[word] for word in words]
        labels[row] = is_good
    return reviews, labels
