"""The node side: agents and executors, the processes of tasks, what they may use and what they leave."""
