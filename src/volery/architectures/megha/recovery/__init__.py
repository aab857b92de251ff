"""Recovery from crashes (arXiv 2103.08413, IV-D), attached to Megha: pairs of Local Masters, reports to GMs."""
