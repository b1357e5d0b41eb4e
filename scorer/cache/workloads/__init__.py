"""The owners of pods, Gangs and disruption budgets, as watched."""
