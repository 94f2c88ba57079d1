"""Several processes that train one model: they meet (`meeting.py`), and agree on when to do what (`agreement.py`)."""
