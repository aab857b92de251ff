"""What users meet: the API, who is let in, the desk that turns words into messages, and the store of jobs."""
